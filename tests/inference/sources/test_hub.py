"""Models of a hub, each fetch in a process of its own: huggingface_hub reads its settings when it is imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.inference.sources import made_up
from tests.inference.sources.hub_server import REPOSITORY, TOKEN, HubServer

MODEL = made_up.files()
ROOT = Path(__file__).resolve().parents[3]
Ask = Callable[..., dict[str, Any]]


@pytest.fixture
def hub() -> Iterator[HubServer]:
    server = HubServer(MODEL)
    yield server
    server.stop()


@pytest.fixture
def ask(hub: HubServer, tmp_path: Path) -> Ask:
    def ask(source: str = REPOSITORY, revision: str = "", **environment: str) -> dict[str, Any]:
        told = subprocess.run(
            [sys.executable, "-m", "tests.inference.sources.fetching_process", source, tmp_path / "cache", revision],
            cwd=ROOT,
            env={
                **os.environ,
                "HF_ENDPOINT": hub.url,
                "HF_HOME": str(tmp_path / "hf"),
                "HF_HUB_DISABLE_XET": "1",
                "HF_HUB_DISABLE_TELEMETRY": "1",
                "HF_TOKEN": TOKEN,
                **environment,
            },
            stdout=subprocess.PIPE,
            check=True,
            timeout=60,
        )
        answer: dict[str, Any] = json.loads(told.stdout)
        return answer

    return ask


def test_a_branch_is_pinned_to_its_commit(hub: HubServer, ask: Ask) -> None:
    first = ask()
    before = hub.main
    hub.commit({**MODEL, "config.json": b"{}"})

    assert first["revision"] == before
    assert made_up.read(Path(first["folder"])) == made_up.needed(MODEL)
    assert first["prompt_files"] == first["folder"]
    sizes = sum(map(len, made_up.needed(MODEL).values()))
    assert [0, sizes] in first["told"]
    assert [sizes, sizes] in first["told"]

    hub.asked.clear()
    again = ask(revision=first["revision"])
    assert (again["digest"], again["folder"]) == (first["digest"], first["folder"])
    assert not hub.asked


def test_offline_what_is_there_will_do(hub: HubServer, ask: Ask) -> None:
    missing = ask(HF_HUB_OFFLINE="1")
    online = ask()
    hub.asked.clear()

    assert missing["code"] == "source_unreachable"
    assert ask(HF_HUB_OFFLINE="1")["digest"] == online["digest"]
    assert not hub.asked
    hub.stop()
    assert ask()["digest"] == online["digest"]


def test_what_is_not_there_is_named(ask: Ask) -> None:
    assert ask("Org/Other")["code"] == "source_not_found"
    assert ask(revision="no-such-branch")["code"] == "source_not_found"


def test_a_closed_repository_wants_a_token_and_tells_none(hub: HubServer, ask: Ask) -> None:
    hub.closed = True

    refused = ask()

    assert refused["code"] == "source_not_found"
    assert "HF_TOKEN" in refused["text"]
    assert TOKEN not in json.dumps(refused)


def test_only_safetensors_are_served_and_nothing_else_is_fetched(hub: HubServer, ask: Ask) -> None:
    hub.commit({name: MODEL[name] for name in ("config.json", "tokenizer.json", "pytorch_model.bin")})

    refused = ask()

    assert refused["code"] == "model_not_servable"
    assert "pytorch_model.bin" in refused["text"]
    assert not [path for path in hub.asked if "/resolve/" in path]


def test_a_hub_that_is_away_is_told(hub: HubServer, ask: Ask) -> None:
    hub.stop()

    assert ask()["code"] == "source_unreachable"
