"""A report says what was found, how, and on what; it needs nothing from elsewhere."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import pytest

from loadtest import plots, report
from loadtest.knee import Bounds
from loadtest.page import page
from loadtest.report import NoReport, Report
from tests.loadtest.stepped import step

PNG = b"\x89PNG\r\n\x1a\n"
VOID = ("img", "meta")
WHOLE = Report(
    at=datetime(2026, 12, 1, 9, 30, tzinfo=UTC),
    model="Small <b>& fast</b>",
    engine="vllm",
    url="http://127.0.0.1:8000",
    limits=["lifted: budgets", "kept: queue depths"],
    machine={"cores": 2, "processor": "a processor"},
    options={"think_seconds": 6.0, "tiers": {"free": 7, "pro": 1}, "url": None},
    bounds=Bounds(ttft_s=2.0, speed=3.0),
    margin=0.25,
    steps=[step(4, ttft_s=0.5), step(8, ttft_s=1.0), step(12, ttft_s=4.0, refusals={"queue_full": 1})],
    is_whole=True,
)
NOT_FOUND = replace(WHOLE, steps=WHOLE.steps[:2])


class Document(HTMLParser):
    """Notes what a page points at and says, and whether its elements are closed as they are opened."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.points_at: list[str] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.points_at += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "action", "data")]
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_needs_nothing_from_elsewhere() -> None:
    whole = page(WHOLE, plots.drawn(WHOLE))
    document = Document(whole)

    assert document.points_at
    assert all(address.startswith("data:image/png;base64,") for address in document.points_at)
    assert not {"script", "link", "iframe", "object"} & set(document.elements)
    assert "@import" not in whole
    assert "url(" not in whole


def test_the_page_says_the_knee_the_advice_and_the_bound_that_broke() -> None:
    text = Document(page(WHOLE, PNG)).text

    assert "10.0 users: from there on 5 of 100 questions wait longer than 2 s" in text
    assert "7 users like these, 25% below the knee." in text


def test_the_page_says_what_was_tested_and_how() -> None:
    text = Document(page(WHOLE, PNG)).text

    for part in (
        "Small <b>& fast</b>",
        "vllm",
        "a processor",
        "lifted: budgets",
        "free 7, pro 1",
        "95 of 100 within 2 s",
    ):
        assert part in text
    assert "1 queue_full" in text
    assert "None" not in text


def test_of_a_deployment_that_runs_the_engine_is_not_known() -> None:
    deployed = replace(WHOLE, engine="as deployed", options={"engine": "vllm", "url": "http://127.0.0.1:8000"})
    text = Document(page(deployed, PNG)).text

    assert "as deployed" in text
    assert "vllm" not in text


def test_a_knee_that_was_not_found_is_said_so() -> None:
    text = Document(page(NOT_FOUND, PNG)).text

    assert "Not found up to 8 users" in text
    assert "6 users like these, 25% below the most that were tried." in text


def test_a_first_step_beyond_its_bound_advises_nothing() -> None:
    below = replace(WHOLE, steps=[step(4, speed=1.0)])

    assert report.knee_in_words(below).startswith("Below 4 users: the first step")
    assert report.advice_in_words(below).startswith("None")
    assert plots.drawn(below).startswith(PNG)


def test_a_scripted_engine_is_said_in_plain_sight() -> None:
    scripted = replace(WHOLE, engine="scripted")

    assert '<p class="warning">The engine was scripted' in page(scripted, PNG)
    assert "The engine was scripted" not in page(WHOLE, PNG)


def test_a_test_that_was_stopped_and_a_step_that_was_disturbed_are_said_so() -> None:
    disturbed = replace(WHOLE, is_whole=False, steps=[replace(WHOLE.steps[0], others=0.4), *WHOLE.steps[1:]])
    text = Document(page(disturbed, PNG)).text

    assert "stopped before its end" in text
    assert "more than 10% of the machine's cores in the steps of 4 users" in text
    assert "stopped" not in Document(page(WHOLE, PNG)).text


def test_the_plots_are_a_png_also_of_steps_in_which_nothing_came() -> None:
    for each in (WHOLE, NOT_FOUND, replace(WHOLE, steps=[step(4, ttft_s=None, speed=None)])):
        assert plots.drawn(each).startswith(PNG)


def test_what_is_written_can_be_read_again(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(report.as_json(WHOLE))

    assert report.read(path) == WHOLE
    told = json.loads(path.read_text())
    assert told["knee"] == {"state": "found", "users": pytest.approx(10.0), "broke": "ttft"}
    assert told["advice"] == {"users": 7, "margin": 0.25}


def test_two_knees_are_held_together() -> None:
    later = replace(WHOLE, steps=[step(4, ttft_s=0.5), step(8, ttft_s=1.0), step(12, ttft_s=2.0), step(16, ttft_s=8.0)])

    assert report.compared(WHOLE, later) == "Knees at 10.0 and 12.0 users: ratio 1.20, 20% apart."
    assert report.compared(later, WHOLE) == "Knees at 12.0 and 10.0 users: ratio 0.83, 20% apart."
    assert report.compared(WHOLE, NOT_FOUND).startswith("No ratio: 10.0 users")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 99}', '{"format": 1}', "null"])
def test_what_is_no_report_is_said_so(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)

    with pytest.raises(NoReport, match=r"other\.json"):
        report.read(path)
