"""manage.py apikey, manage.py prepare."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from pathlib import Path

import pytest
from django.conf import settings
from django.contrib.auth import authenticate
from django.core.management import CommandError, call_command
from django.test import Client

from chat.models import ApiKey, User
from inference.sources import Source, fetch
from scheduler import rollouts
from scheduler.models import Model, ModelVersion, Tier

pytestmark = pytest.mark.django_db


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text('{"max_position_embeddings": 4096}')
    return tmp_path


def prepare(folder: Path, name: str = "small") -> dict[str, str]:
    out = io.StringIO()
    call_command("prepare", "--model-path", str(folder), "--model-name", name, stdout=out)
    (line,) = out.getvalue().splitlines()
    said: dict[str, str] = json.loads(line)
    return said


def test_apikey_prints_a_secret_that_opens_and_nothing_else(alice: User) -> None:
    out, notes = io.StringIO(), io.StringIO()

    call_command("apikey", "alice", "--name", "laptop", stdout=out, stderr=notes)

    (secret,) = out.getvalue().splitlines()
    assert Client(headers={"Authorization": f"Bearer {secret}"}).get("/api/chats").status_code == 200
    assert ApiKey.objects.get().name == "laptop"
    assert "laptop" in notes.getvalue()
    assert secret not in notes.getvalue()


@pytest.mark.parametrize("name", ["nobody", ""])
def test_apikey_for_nobody_is_one_line(name: str) -> None:
    with pytest.raises(CommandError, match=r"\AThere is no active user called .*\.\Z") as refusal:
        call_command("apikey", name)

    assert refusal.value.returncode == 1


def test_prepare_registers_the_model_for_all_tiers(folder: Path, free: Tier, pro: Tier) -> None:
    prepare(folder)

    model = Model.objects.get()
    assert (model.slug, model.source, model.context_window) == ("small", str(folder), 4096)
    assert (model.temperature, model.is_default) == (Decimal(0), True)
    assert set(model.tiers.all()) == set(Tier.objects.all()) >= {free, pro}


def test_prepare_makes_an_account_that_gets_into_the_admin(folder: Path, client: Client) -> None:
    said = prepare(folder)

    assert said["demo_user"] == "demo"
    assert authenticate(username="demo", password=said["demo_password"])
    assert client.login(username="demo", password=said["demo_password"])
    assert client.get("/admin/").status_code == 200


def test_prepare_again_tells_no_password_and_keeps_what_was_changed(folder: Path, free: Tier) -> None:
    prepare(folder)
    Model.objects.update(temperature="0.5", system_prompt="Be kind.", name="Mine")
    Model.objects.get().tiers.set([free])
    password = User.objects.get().password

    assert prepare(folder) == {"demo_user": "demo"}

    model = Model.objects.get()
    assert (model.temperature, model.system_prompt, model.name) == (Decimal("0.5"), "Be kind.", "Mine")
    assert list(model.tiers.all()) == [free]
    assert User.objects.get().password == password


def test_prepare_with_another_model_switches_the_one_before_off(folder: Path) -> None:
    prepare(folder, "small")
    prepare(folder, "other")

    assert list(Model.objects.values_list("slug", "is_default", "is_active")) == [
        ("other", True, True),
        ("small", False, False),
    ]


def test_prepare_follows_a_folder_that_moved(folder: Path) -> None:
    prepare(folder)
    (folder / "config.json").write_text('{"text_config": {"max_position_embeddings": 512}}')
    moved = folder.rename(folder.with_name("moved"))

    prepare(moved)

    model = Model.objects.get()
    assert (model.source, model.context_window) == (str(moved), 512)


def test_prepare_keeps_what_an_operator_rolled_out(folder: Path) -> None:
    prepare(folder)
    model = Model.objects.get()
    rollouts.adopt(ModelVersion.objects.create(model=model, source="s3://models/better", context_window=1024))

    prepare(folder)

    model = Model.objects.get()
    assert (model.source, model.context_window, model.versions.count()) == ("s3://models/better", 1024, 2)


def test_prepare_makes_a_version_of_files_that_have_changed(folder: Path) -> None:
    prepare(folder)
    (folder / "tokenizer.json").write_text("{}")
    head = b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    (folder / "model.safetensors").write_bytes(len(head).to_bytes(8, "little") + head + b"1234")
    found = fetch(Source.parse(str(folder)), cache=settings.MODEL_CACHE).manifest
    ModelVersion.objects.update(digest=found.digest, manifest=found.as_json())
    prepare(folder)
    assert ModelVersion.objects.count() == 1

    (folder / "tokenizer.json").write_text('{"other": 1}')
    prepare(folder)

    assert Model.objects.get().version == ModelVersion.objects.get(number=2)


def test_prepare_takes_the_temperature_that_the_makers_advise(folder: Path) -> None:
    (folder / "generation_config.json").write_text('{"temperature": 0.6}')

    prepare(folder)

    assert Model.objects.get().temperature == Decimal("0.6")


@pytest.mark.parametrize("config", ["{", "{}", '{"max_position_embeddings": null}'])
def test_prepare_with_a_broken_folder_is_one_line_and_changes_nothing(folder: Path, config: str) -> None:
    (folder / "config.json").write_text(config)

    with pytest.raises(CommandError, match=r"\A.*config\.json.*\Z"):
        prepare(folder)

    assert not Model.objects.exists()
    assert not User.objects.exists()
