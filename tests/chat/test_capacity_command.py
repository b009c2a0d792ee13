"""manage.py capacity, without an engine: what it refuses, and its words. The engine's numbers are in tests/contract."""

from __future__ import annotations

import pytest
from django.core.management import CommandError, call_command

from inference import capacity_report
from inference.capacity import Advice, Profile
from inference.capacity_report import people
from scheduler.models import Model

PROFILE = Profile(sequence_tokens=1000, answer_tokens=200, think_s=30, least_each=10)


@pytest.mark.django_db
def test_a_model_that_there_is_not_is_named() -> None:
    with pytest.raises(CommandError, match="There is no model nowhere"):
        call_command("capacity", "nowhere")
    with pytest.raises(CommandError, match="There is no default model"):
        call_command("capacity")


@pytest.mark.django_db
@pytest.mark.parametrize(("name", "value"), [("SLOTS", "many"), ("KV_CACHE_BLOCKS", "few")])
def test_a_setting_that_cannot_be_read_is_named(
    model: Model, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    assert capacity_report.main(["--model", model.pk]) == 1
    assert value in capsys.readouterr().err


@pytest.mark.parametrize("option", [["--length", "0"], ["--think", "x"], ["--gpu", "-1"]])
def test_options_are_positive_numbers(option: list[str]) -> None:
    with pytest.raises(CommandError, match="invalid"):
        call_command("capacity", *option)


@pytest.mark.parametrize(
    ("advice", "words"),
    [
        (Advice(16, 112, "memory"), "about 112, 16 answers at a time; the limit is memory"),
        (Advice(0, 0, "speed"), "none, since not even one answer is that fast"),
        (Advice(0, 0, "memory"), "none, since not even one such chat fits"),
    ],
)
def test_how_many_people_is_said_with_its_limit(advice: Advice, words: str) -> None:
    assert words in people(advice, PROFILE)[-1]
