"""What each act of a run's life costs in statements, commands and round trips: a change here is meant, or a mistake."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from uuid import uuid4

import pytest
from django.conf import settings
from django.test import Client
from redis.asyncio import Redis

from chat import context
from chat.generation import claim_run, finish_run
from chat.models import Chat, Outcome, Run, Status, User
from inference.scripted_engine import Script
from inference.stream_writer import StreamWriter
from inference.streams import Ended
from scheduler.models import Model
from tests.chat.generating import A_MINUTE, working
from tests.metering import metered

pytestmark = pytest.mark.django_db(transaction=True)


def post(client: Client, chat: Chat) -> None:
    answer = client.post(f"/api/chats/{chat.pk}/messages", {"content": "Hi"}, content_type="application/json")
    assert answer.status_code == 202


def test_one_post(alice: User, as_alice: Client, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    chats = [Chat.objects.create(owner=alice) for _ in range(2)]
    post(as_alice, chats[0])  # opens connections, loads the tokenizer and the script

    with metered(monkeypatch) as costs:
        post(as_alice, chats[1])

    assert costs.verbs == [
        "SELECT",  # the key, its user and tier
        "SELECT",  # the chat
        "SELECT",  # the model
        "SELECT",  # may this be asked at all?
        "SELECT",  # the history
        "BEGIN",
        "SELECT",  # the user's lock
        "SELECT",  # may this be asked, for sure?
        "INSERT",  # the message
        "UPDATE",  # the chat's activity
        "INSERT",  # the run
        "COMMIT",
        "UPDATE",  # released
    ]
    assert costs.commands == ["EVALSHA", "LPUSH"]  # through its room; to its queue
    assert costs.round_trips == 2


@pytest.fixture
def runs(new_run: Callable[..., Run], chat: Chat) -> list[Run]:
    """Two runs; the first opens connections and loads what is loaded once."""
    runs = [new_run(in_chat=Chat.objects.create(owner=chat.owner)) for _ in range(2)]
    Run.objects.update(max_output_tokens=1000)
    return runs


def test_one_claim(runs: list[Run], monkeypatch: pytest.MonkeyPatch) -> None:
    with metered(monkeypatch) as costs:
        run, _ = claim_run(runs[0].pk, "worker", A_MINUTE)
        context.for_run(run)

    assert costs.verbs == [
        "UPDATE",  # the claim
        "SELECT",  # the run with its model and its question's place
        "SELECT",  # the history
    ]
    assert costs.round_trips == 0


def test_one_finish(runs: list[Run], monkeypatch: pytest.MonkeyPatch) -> None:
    run, claim = claim_run(runs[0].pk, "worker", A_MINUTE)
    with metered(monkeypatch) as costs:
        assert finish_run(run, claim.attempt, Outcome(Status.DONE), "text", uuid4())

    assert costs.verbs == [
        "BEGIN",
        "UPDATE",  # the chat's activity
        "UPDATE",  # the run
        "INSERT",  # the message
        "COMMIT",
    ]
    assert costs.round_trips == 0


@pytest.mark.parametrize("tokens", [10, 200])
async def test_one_attempt_costs_the_same_statements_however_many_tokens_it_has(
    runs: list[Run], monkeypatch: pytest.MonkeyPatch, tokens: int
) -> None:
    script = Script(text="a " * tokens, tokens_per_s=2000)
    async with working(script) as worker:
        await worker.attempts.run(runs[0].pk)
        with metered(monkeypatch) as costs:
            await worker.attempts.run(runs[1].pk)

    # The claim, the prompt, the end; the room is empty, so that releasing costs none.
    assert costs.verbs == ["UPDATE", "SELECT", "SELECT", "BEGIN", "UPDATE", "UPDATE", "INSERT", "COMMIT"]


async def test_one_token_of_many_runs_is_one_append_a_run_in_one_round_trip(monkeypatch: pytest.MonkeyPatch) -> None:
    window_s = 0.1
    async with Redis.from_url(settings.STREAMS_URL) as redis, StreamWriter(redis, window_s) as writer:
        streams = [await writer.open(uuid4(), 1, "model") for _ in range(16)]
        for stream in streams:
            stream.push("first", [1])
        await asyncio.gather(*(stream.flush() for stream in streams))
        await asyncio.sleep(window_s)
        with metered(monkeypatch) as costs:
            for token in range(10):
                for stream in streams:
                    stream.push("token", [token])
            await asyncio.sleep(2 * window_s)
        await asyncio.gather(*(stream.end(Ended("done", {})) for stream in streams))

    assert costs.commands == ["XADD"] * 16
    assert costs.round_trips == 1
    assert costs.statements == []


async def test_opening_and_ending_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Redis.from_url(settings.STREAMS_URL) as redis, StreamWriter(redis) as writer:
        await redis.ping()
        with metered(monkeypatch) as opening:
            stream = await writer.open(uuid4(), 1, "model")
        with metered(monkeypatch) as ending:
            await stream.end(Ended("done", {}))

    assert (opening.commands, opening.round_trips) == (["XADD", "EXPIRE"], 1)
    assert (ending.commands, ending.round_trips) == (["XADD", "EXPIRE"], 1)
