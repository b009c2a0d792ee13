"""What each act of a run's life costs in statements, commands and round trips: a change here is meant, or a mistake."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from uuid import uuid4

import pytest
from django.conf import settings
from django.test import Client
from redis.asyncio import Redis

from chat import context, last_words, queueing
from chat.draft import Piece
from chat.finishing import finish_run
from chat.generation import claim_run
from chat.leases import Progress, renew
from chat.models import Chat, Checkpoint, Outcome, Run, Status, User
from inference.scripted_engine import Script
from inference.stream_writer import StreamWriter
from inference.streams import Ended
from scheduler.models import Model
from tests.chat.generating import A_MINUTE, working
from tests.metering import metered

pytestmark = pytest.mark.django_db(transaction=True)


# What is left of the credential's requests and of its user's tokens, for the answer's headers.
LEFT = ("EVALSHA", "EVALSHA")


def post(client: Client, chat: Chat, **headers: str) -> None:
    address = f"/api/chats/{chat.pk}/messages"
    answer = client.post(address, {"content": "Hi"}, content_type="application/json", headers=headers)
    assert answer.status_code == 202


@pytest.fixture
def _busy(bob: User, as_bob: Client, model: Model) -> None:
    """Opens connections, loads the tokenizer and the script."""
    post(as_bob, Chat.objects.create(owner=bob))


@pytest.mark.usefixtures("_busy")
def test_one_post(alice: User, as_alice: Client, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    chats = [Chat.objects.create(owner=alice) for _ in range(2)]
    post(as_alice, chats[0])  # somebody waits: opens another, by which waits are estimated

    with metered(monkeypatch) as costs:
        post(as_alice, chats[1])

    assert costs.verbs == [
        "SELECT",  # the key, its user and tier
        "SELECT",  # the chat
        "SELECT",  # the model
        "SELECT",  # may this be asked at all?
        *("SELECT", "SELECT"),  # its summary and the run before; the history
        "BEGIN",
        "SELECT",  # the user's lock
        "SELECT",  # may this be asked, for sure?
        "UPDATE",  # the chat's activity
        "INSERT",  # the message, and in the same round trip the run
        "COMMIT",
        "UPDATE",  # released
    ]
    assert costs.commands == [
        "EVALSHA",  # the credential's counter
        *("HGETALL", "TIME"),  # how long it would wait: somebody does
        "EVALSHA",  # its cost is reserved
        *("PUBLISH", "PUBLISH"),  # the run; its chat
        *("EVALSHA", "LPUSH"),  # through its room; to its queue
        *LEFT,
    ]
    assert costs.round_trips == 8


def test_one_post_with_a_key_and_the_same_again(
    alice: User, as_alice: Client, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    chats = [Chat.objects.create(owner=alice) for _ in range(2)]
    post(as_alice, chats[0])
    Run.objects.all().delete()
    with metered(monkeypatch) as without:
        post(as_alice, chats[1])
    Run.objects.all().delete()
    key = {"Idempotency-Key": "a key"}

    with metered(monkeypatch) as first:
        post(as_alice, chats[1], **key)
    with metered(monkeypatch) as second:
        post(as_alice, chats[1], **key)

    taken, settled = "INSERT", "UPDATE"
    stored = without.verbs.index("COMMIT") - 1
    assert first.verbs == ["SELECT", taken, *without.verbs[1:stored], settled, *without.verbs[stored:]]
    assert first.commands == without.commands
    assert second.verbs == [
        "SELECT",  # the API key, its user and tier
        "INSERT",  # the key, which is there
        "SELECT",  # what it made
        "SELECT",  # the run
    ]
    assert second.commands == ["EVALSHA", *LEFT]  # the credential's counter


def test_a_request_of_a_credential_is_counted_and_told_what_is_left_in_three_round_trips(
    as_alice: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_alice.get("/api/models")

    with metered(monkeypatch) as costs:
        as_alice.get("/api/models")

    assert costs.verbs == [
        "SELECT",  # the key, its user and tier
        "SELECT",  # the models
    ]
    assert costs.commands == ["EVALSHA", *LEFT]
    assert costs.round_trips == 3


def test_one_look_at_the_usage(as_alice: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    as_alice.get("/api/usage")

    with metered(monkeypatch) as costs:
        as_alice.get("/api/usage")

    assert costs.verbs == [
        "SELECT",  # the key, its user and tier
        "SELECT",  # the live runs, by status
        "SELECT",  # the ledger's day
    ]
    assert costs.commands == ["EVALSHA", "EVALSHA", *LEFT]  # the credential's counter; the budget


def retry(client: Client, run: Run) -> None:
    assert client.post(f"/api/runs/{run.pk}/retry").status_code == 202


def test_one_retry(as_alice: Client, chat: Chat, new_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [new_run(Status.DONE, in_chat=Chat.objects.create(owner=chat.owner)) for _ in range(2)]
    retry(as_alice, runs[0])  # opens connections, loads the tokenizer and the script

    with metered(monkeypatch) as costs:
        retry(as_alice, runs[1])

    assert costs.verbs == [
        "SELECT",  # the key, its user and tier
        "SELECT",  # the run, its chat and question
        "SELECT",  # the model
        "SELECT",  # may this be asked at all?
        *("SELECT", "SELECT"),  # its summary and the run before; the history
        "BEGIN",
        "SELECT",  # the user's lock
        "SELECT",  # may this be asked, for sure?
        "UPDATE",  # the chat's activity
        "INSERT",  # the run
        "COMMIT",
        "UPDATE",  # released
    ]
    assert costs.commands == [
        "EVALSHA",
        *("HGETALL", "TIME"),
        "EVALSHA",
        *("PUBLISH", "PUBLISH", "EVALSHA", "LPUSH"),
        *LEFT,
    ]


def cancel(client: Client, run: Run) -> None:
    assert client.post(f"/api/runs/{run.pk}/cancel").status_code < 300


def test_cancelling_a_run_that_waits(as_alice: Client, runs: list[Run], monkeypatch: pytest.MonkeyPatch) -> None:
    for run in runs:
        queueing.admit(run)
    cancel(as_alice, runs[0])  # opens connections, loads the script

    with metered(monkeypatch) as costs:
        cancel(as_alice, runs[1])

    assert costs.verbs == [
        "SELECT",  # the key, its user and tier
        "SELECT",  # the run
        "UPDATE",  # its end
        "SELECT",  # as it is now
        "SELECT",  # its chat, for the pages that show it
    ]
    assert costs.commands == [
        "EVALSHA",  # the credential's counter
        *("XADD", "EXPIRE"),  # its readers
        "EVALSHA",  # out of the room or the queue
        "EVALSHA",  # the next one in
        "EVALSHA",  # its cost is given back
        *("PUBLISH", "PUBLISH"),  # the run; its chat
        *LEFT,
    ]
    assert costs.round_trips == 8


def test_cancelling_a_run_that_streams(as_alice: Client, runs: list[Run], monkeypatch: pytest.MonkeyPatch) -> None:
    for run in runs:
        Run.objects.claim(run.pk, "worker", A_MINUTE)
    cancel(as_alice, runs[0])

    with metered(monkeypatch) as costs:
        cancel(as_alice, runs[1])

    assert costs.verbs == [
        "SELECT",  # the key, its user and tier
        "SELECT",  # the run
        "UPDATE",  # it does not wait
        "UPDATE",  # the flag
        "SELECT",  # as it is now
    ]
    assert costs.commands == ["EVALSHA", "PUBLISH", *LEFT]  # the credential's counter; its worker
    assert costs.round_trips == 4


def test_deleting_a_chat(
    as_alice: Client, chat: Chat, new_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(20):
        new_run(Status.DONE)
    last_words.forget([chat.pk])  # opens the connection
    as_alice.get("/api/chats")

    with metered(monkeypatch) as costs:
        assert as_alice.delete(f"/api/chats/{chat.pk}").status_code == 204

    assert costs.verbs == [
        "SELECT",  # the key, its user and tier
        "SELECT",  # the chat
        "BEGIN",
        "SELECT",  # the user's lock
        "SELECT",  # the chat's
        "SELECT",  # what is live
        "SELECT",  # whose streams may be there
        *("SELECT", "INSERT"),  # what they were charged is kept
        "SELECT",  # the messages
        *("SELECT", "SELECT", "SELECT"),  # the runs, by question, answer and chat
        "DELETE",  # their checkpoints
        *("DELETE", "UPDATE", "UPDATE"),  # its summaries, those of its runs, and what goes on from it
        "DELETE",  # the runs
        "DELETE",  # the messages
        "DELETE",  # the chat
        "COMMIT",
    ]
    # The credential's counter; its pages; its streams; its hot context.
    assert costs.commands == ["EVALSHA", "PUBLISH", "UNLINK", "UNLINK", *LEFT]


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


def test_one_renewal_of_all_runs_with_what_they_produced(runs: list[Run], monkeypatch: pytest.MonkeyPatch) -> None:
    claims = [claim_run(run.pk, "worker", A_MINUTE)[1] for run in runs]
    with metered(monkeypatch) as costs:
        renewal = renew([Progress(claim, Piece(0, "text", (1, 2))) for claim in claims], A_MINUTE)

    assert renewal.lost == frozenset()
    assert Checkpoint.objects.count() == len(runs)
    assert costs.verbs == ["WITH"]
    assert costs.round_trips == 0


def test_one_finish(runs: list[Run], monkeypatch: pytest.MonkeyPatch) -> None:
    run, claim = claim_run(runs[0].pk, "worker", A_MINUTE)
    with metered(monkeypatch) as costs:
        assert finish_run(run, claim.attempt, Outcome(Status.DONE), "text", uuid4())

    assert costs.verbs == [
        "BEGIN",
        "UPDATE",  # the chat's activity
        "UPDATE",  # the run
        "UPDATE",  # an answer that stands in its place
        "INSERT",  # the message
        "INSERT",  # the ledger
        "COMMIT",
    ]
    assert costs.round_trips == 0


@pytest.mark.parametrize("tokens", [10, 200])
async def test_one_attempt_costs_the_same_statements_however_many_tokens_it_has(
    runs: list[Run], monkeypatch: pytest.MonkeyPatch, tokens: int
) -> None:
    script = Script(text="a " * tokens, tokens_per_s=2000)
    async with working(script) as worker:
        await worker.ask_rows(lambda: Chat.objects.update(title="Named"))  # nothing is due behind the answer
        await worker.attempts.run(runs[0].pk)
        await worker.attempts._announcements.finish()
        await worker.attempts._follow_ups.finish()
        with metered(monkeypatch) as costs:
            await worker.attempts.run(runs[1].pk)
            await worker.attempts._announcements.finish()
            await worker.attempts._follow_ups.finish()

    # The claim, the prompt, the end; the room is empty, so that releasing costs none.
    course = ["UPDATE", "SELECT", "SELECT", "BEGIN", "UPDATE", "UPDATE", "UPDATE", "INSERT", "INSERT", "COMMIT"]
    # The chat, for the pages that show it; whether it is there still.
    assert costs.verbs == [*course, "SELECT", "SELECT"]


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
