"""Backup, a fresh machine, restore, by the commands that docs/postgres.md has."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.postgres.backups import PASSWORD, Kept, browser_of, ledger, send, told
from tests.sse_client import Api
from tests.stack.stack import Stack


@pytest.fixture
def kept(backup: tuple[Path, Kept]) -> Kept:
    return backup[1]


async def test_users_chats_and_usage_are_as_they_were_and_keys_open(kept: Kept, restored: Stack) -> None:
    assert len(kept.answers["chats"]) == 2
    assert kept.answers["usage"]["tier"] == "pro"
    assert kept.answers["usage"]["concurrency"] == 7  # by an override

    assert await told(Api(restored.port, kept.key)) == kept.answers
    assert ledger(restored.database_url, kept.name) == kept.ledger != []


def test_people_sign_in_as_before(kept: Kept, restored: Stack) -> None:
    with browser_of(restored.port) as browser:
        page = send(browser, "/sign-in", username=kept.name, password=PASSWORD)

    assert "Worth keeping" in page.text


@pytest.mark.parametrize("which", ["queued", "streamed"])
async def test_runs_that_were_live_are_answered(kept: Kept, restored: Stack, which: str) -> None:
    api, live = Api(restored.port, kept.program), getattr(kept, which)

    await api.read(live.asked["stream"], live.reading)  # from where the reader was, before all was lost

    messages = (await api.get(f"/api/chats/{live.asked['chat_id']}/messages"))["results"]
    assert [message["run"]["status"] for message in messages] == ["done", "done"]
    assert live.reading.text == messages[-1]["content"]
    assert live.reading.ended.data["sha256"] == hashlib.sha256(live.reading.text.encode()).hexdigest()


async def test_questions_are_taken_and_counted(kept: Kept, restored: Stack) -> None:
    api = Api(restored.port, kept.key)
    before = ledger(restored.database_url, kept.name)
    asked = await api.ask("Are you well?", kept.answers["chats"][0]["id"])
    async with api.stream(asked["stream"]) as stream:
        assert (await stream.events())[-1].name == "done"

    assert ledger(restored.database_url, kept.name) != before
