"""The course of an attempt, from the claim to the last event, on real rows and real streams."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import threading
from collections.abc import AsyncGenerator, Callable, Collection
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import TypeVar
from uuid import UUID, uuid4

import pytest
from django.db import connections, transaction

from chat import context
from chat import leases as of_leases
from chat.draft import Piece
from chat.finishing import finish_run
from chat.leases import Progress, Renewal, give_back, renew
from chat.models import Chat, Claim, Message, Outcome, Role, Run, RunTaken, Status
from chat.queueing import dispatcher
from inference.engine import EngineDead, FinishReason, Step
from inference.host import HandedBack
from inference.scripted_engine import Failure, Script, ScriptedEngine
from inference.streams import Delta, EntryId, Started
from scheduler.room import room_key
from tests.chat.generating import A_MINUTE, endings_of, told_text, working

T = TypeVar("T")
pytestmark = pytest.mark.django_db(transaction=True)

TEXT = "Grüße, 世界! سلام دنیا 👩‍👩‍👧‍👦 e\u0301. "
FAST = Script(text=TEXT, tokens_per_s=2000, split_characters=True)
SLOW = Script(text=TEXT * 50, tokens_per_s=100)
LONG = 6000  # tokens; at the slow script's rate a minute of them
AN_HOUR_AGO = timedelta(hours=-1)


@pytest.fixture
def run(new_run: Callable[..., Run]) -> Run:
    run = new_run(text="What is up?")
    run.max_output_tokens = LONG
    run.save(update_fields=["max_output_tokens"])
    return run


def claim(run: Run, lease: timedelta = A_MINUTE) -> Claim:
    return Run.objects.claim(run.pk, "another worker", lease)


async def test_a_run_becomes_a_message_that_equals_what_was_told(run: Run) -> None:
    async with working(FAST) as worker:
        await worker.attempts.run(run.pk)
        row, entries = await worker.row(run), await worker.entries(run)

    assert row.status == Status.DONE
    assert row.answer is not None
    assert row.answer.content == told_text(entries) == TEXT
    assert (row.answer.role, row.answer.position) == (Role.ASSISTANT, 2)
    assert entries[0].event == Started(1, run.model_id)
    assert entries[-1].id == EntryId.terminal(1)
    [ended] = endings_of(entries)
    assert ended.data == {
        "status": "done",
        "message_id": str(row.answer_id),
        "finish_reason": "stop",
        "chars": len(TEXT),
        "sha256": hashlib.sha256(TEXT.encode()).hexdigest(),
        "usage": {
            "input_tokens": run.input_tokens,
            "cached_tokens": 0,
            "output_tokens": row.output_tokens,
            "charged_tokens": run.input_tokens + row.output_tokens,
        },
    }
    assert row.output_tokens == len(TEXT.encode())  # the script's tokens are bytes


async def test_the_entries_hold_the_ids_of_every_token(run: Run) -> None:
    async with working(FAST) as worker:
        await worker.attempts.run(run.pk)
        deltas = [entry.event for entry in await worker.entries(run) if isinstance(entry.event, Delta)]

    assert sum(len(delta.token_ids) for delta in deltas) == len(TEXT.encode())


async def test_the_times_of_a_run_are_in_order(run: Run) -> None:
    async with working(Script(text="a b c", first_token_ms=50)) as worker:
        await worker.attempts.run(run.pk)
        row = await worker.row(run)

    times = [time for time in (row.created_at, row.started_at, row.first_token_at, row.finished_at) if time]
    assert all(earlier < later for earlier, later in pairwise(times))
    _, started_at, first_token_at, _ = times
    assert first_token_at - started_at >= timedelta(milliseconds=50)


async def test_an_answer_ends_at_the_runs_own_cap(run: Run) -> None:
    async with working(SLOW) as worker:
        await worker.ask_rows(lambda: Run.objects.filter(pk=run.pk).update(max_output_tokens=7))
        await worker.attempts.run(run.pk)
        row = await worker.row(run)

    assert (row.finish_reason, row.output_tokens) == ("length", 7)


async def test_an_answer_ends_before_its_stop_string_and_frees_the_engine_at_once(run: Run) -> None:
    async with working(Script(text=f"{TEXT}###{TEXT * 20}", tokens_per_s=2000, split_characters=True)) as worker:
        await worker.ask_rows(lambda: Run.objects.filter(pk=run.pk).update(wishes={"stop": ["\n\n\n", "###"]}))
        await worker.attempts.run(run.pk)
        row, entries = await worker.row(run), await worker.entries(run)
        assert worker.engine.load().requests == 0

    assert row.answer
    assert row.answer.content == told_text(entries) == TEXT
    assert (row.status, row.finish_reason, row.output_tokens) == (Status.DONE, "stop", len(f"{TEXT}###".encode()))
    assert row.answer.token_ids is None  # they make more than the text


async def test_an_answer_that_might_have_become_a_stop_string_is_told_to_its_end(run: Run) -> None:
    async with working(FAST) as worker:
        await worker.ask_rows(lambda: Run.objects.filter(pk=run.pk).update(wishes={"stop": [f"{TEXT[-4:]} and on"]}))
        await worker.attempts.run(run.pk)
        row, entries = await worker.row(run), await worker.entries(run)

    assert row.answer
    assert row.answer.content == told_text(entries) == TEXT


async def test_what_the_database_cannot_store_is_replaced_for_readers_alike(run: Run) -> None:
    async with working(Script(text="before\0after", tokens_per_s=2000, split_characters=True)) as worker:
        await worker.attempts.run(run.pk)
        row, entries = await worker.row(run), await worker.entries(run)

    assert row.answer is not None
    assert row.answer.content == told_text(entries) == "before\ufffdafter"


async def test_the_chat_is_active_when_it_is_answered(run: Run) -> None:
    async with working(FAST) as worker:
        await worker.ask_rows(lambda: Chat.objects.filter(pk=run.chat_id).update(updated_at=run.chat.created_at))
        await worker.attempts.run(run.pk)
        chat = await worker.ask_rows(lambda: Chat.objects.get(pk=run.chat_id))

    assert chat.updated_at > run.chat.created_at


@pytest.mark.parametrize(
    "status", [Status.STREAMING, Status.DONE, Status.CANCELLED, Status.FAILED], ids=lambda status: status.value
)
async def test_a_message_for_a_run_that_is_not_to_be_had_does_nothing(
    new_run: Callable[..., Run], status: Status
) -> None:
    run = await asyncio.to_thread(lent, lambda: new_run(status))
    async with working(FAST) as worker:
        await worker.attempts.run(run.pk)

        assert (await worker.row(run)).attempt == run.attempt
        assert await worker.entries(run) == []


async def test_one_message_delivered_twice_is_one_answer(run: Run) -> None:
    async with working(FAST) as worker:
        await asyncio.gather(worker.attempts.run(run.pk), worker.attempts.run(run.pk))
        answers = await worker.ask_rows(lambda: Message.objects.filter(chat=run.chat_id, role=Role.ASSISTANT).count())

        assert answers == 1
        assert told_text(await worker.entries(run)) == TEXT
        assert len(endings_of(await worker.entries(run))) == 1


@pytest.mark.parametrize("after", [0, 20])
async def test_a_generation_that_fails_keeps_the_text_so_far(run: Run, after: int) -> None:
    script = Script(text=TEXT, tokens_per_s=500, failure=Failure.GENERATION_FAILED, fail_after_tokens=after)
    async with working(script) as worker:
        await worker.attempts.run(run.pk)
        row, entries = await worker.row(run), await worker.entries(run)

    assert (row.status, row.error_code, row.output_tokens) == (Status.FAILED, "generation_failed", after)
    assert (row.answer.content if row.answer else "") == told_text(entries)
    assert bool(row.answer) == bool(after)
    [ended] = endings_of(entries)
    assert ended.data["status"] == "failed"
    assert ended.data["code"] == "generation_failed"
    assert ended.data["retryable"] is True
    assert ended.data["detail"] == row.error_detail != ""


async def test_a_prompt_that_the_engine_refuses_is_not_worth_a_retry(run: Run) -> None:
    async with working(Script(failure=Failure.PROMPT_REJECTED)) as worker:
        await worker.attempts.run(run.pk)
        [ended] = endings_of(await worker.entries(run))

    assert ended.data["code"] == "prompt_rejected"
    assert ended.data["retryable"] is False


async def test_no_log_line_holds_text(new_run: Callable[..., Run], caplog: pytest.LogCaptureFixture) -> None:
    run = await asyncio.to_thread(lent, lambda: new_run(text='My secret. [[script {"text": 17}]]'))
    caplog.set_level(logging.DEBUG)
    async with working(FAST) as worker:
        await worker.attempts.run(run.pk)
        await asyncio.sleep(0.05)

    assert "run.ended" in caplog.text
    assert "secret" not in caplog.text


async def test_a_dead_engine_leaves_the_run_to_the_next_attempt(run: Run) -> None:
    async with working(Script(text=TEXT, failure=Failure.ENGINE_DEAD, fail_after_tokens=10)) as worker:
        with pytest.raises(EngineDead):
            await worker.attempts.run(run.pk)
        row, entries = await worker.row(run), await worker.entries(run)

        assert (row.status, endings_of(entries)) == (Status.STREAMING, [])
        assert (await worker.ask_rows(lambda: claim(run))).attempt == 2


async def test_an_engine_that_lets_go_of_a_run_unasked_is_to_blame(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def let_go(*_: object) -> AsyncGenerator[Step, None]:
        yield Step((), FinishReason.ABORT)

    monkeypatch.setattr(ScriptedEngine, "generate", let_go)
    async with working(FAST) as worker:
        with pytest.raises(HandedBack):
            await worker.attempts.run(run.pk)
        row = await worker.row(run)

    assert (row.attempt, row.hand_backs) == (1, 0)  # else it would be tried for ever


async def test_what_arrives_while_the_worker_hands_back_is_handed_back_too(run: Run) -> None:
    async with working(FAST) as worker:
        await worker.attempts.hand_back()
        with pytest.raises(HandedBack):
            await worker.attempts.run(run.pk)

        assert (await worker.ask_rows(lambda: claim(run))).attempt == 2


async def test_a_stale_attempt_publishes_nothing(run: Run) -> None:
    async with working(SLOW) as worker:
        attempt = asyncio.create_task(worker.attempts.run(run.pk))
        await worker.until_told(run, characters=5)
        await worker.ask_rows(lambda: expire(run))
        async with working(replace(SLOW, tokens_per_s=20_000), name="another") as other:
            await other.attempts.run(run.pk)
        told = await worker.entries(run)
        await attempt

        assert await worker.entries(run) == told
        row = await worker.row(run)
        assert row.answer is not None
        assert (row.attempt, row.answer.content) == (2, TEXT * 50)


async def test_an_attempt_whose_row_was_taken_stops_though_its_stream_was_not(run: Run) -> None:
    lease = timedelta(seconds=0.3)
    async with working(SLOW, lease) as worker:
        attempt = asyncio.create_task(worker.attempts.run(run.pk))
        await worker.until_told(run, characters=5)
        await worker.ask_rows(lambda: take_away(run))
        async with asyncio.timeout(5):  # the answer alone takes longer than a minute
            await attempt

        assert worker.engine.load().running == 0
        assert endings_of(await worker.entries(run)) == []
        assert (await worker.row(run)).status == Status.STREAMING


async def test_a_lease_is_renewed_for_as_long_as_the_run_takes(run: Run) -> None:
    async with working(SLOW, lease=timedelta(seconds=0.6)) as worker:
        attempt = asyncio.create_task(worker.attempts.run(run.pk))
        await worker.until_told(run, characters=5)
        await asyncio.sleep(1.2)
        with pytest.raises(RunTaken):
            await worker.ask_rows(lambda: claim(run))
        await worker.attempts.hand_back()
        with pytest.raises(HandedBack):
            await attempt


async def test_a_renewal_on_its_way_does_not_undo_a_hand_back(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, goes_on, over = threading.Event(), threading.Event(), threading.Event()

    def slowly(held: Collection[Progress], _lease: timedelta) -> Renewal:
        begun.set()
        goes_on.wait(20)
        renewal = renew(held, A_MINUTE)
        over.set()
        return renewal

    monkeypatch.setattr(of_leases, "renew", slowly)
    async with working(SLOW, lease=timedelta(seconds=0.3)) as worker:
        attempt = asyncio.create_task(worker.attempts.run(run.pk))
        try:
            await asyncio.to_thread(begun.wait, 20)
            await worker.attempts.hand_back()
            await asyncio.wait({attempt}, timeout=0.5)
        finally:
            goes_on.set()
        with pytest.raises(HandedBack):
            await attempt
        await asyncio.to_thread(over.wait, 20)

        assert (await worker.ask_rows(lambda: claim(run))).attempt == 2


async def test_the_next_run_is_released_from_its_room(new_run: Callable[..., Run], chat: Chat) -> None:
    others = [Chat(owner=chat.owner) for _ in range(2)]
    first, second = await asyncio.to_thread(lent, lambda: [queued_in_room(new_run, other) for other in others])
    async with working(FAST) as worker:
        await worker.attempts.run(first.pk)

        async def released() -> bool:
            return (await worker.row(second)).released_at is not None

        await worker.until(released)


async def test_a_message_that_leads_to_no_run_makes_room_for_the_next(new_run: Callable[..., Run], chat: Chat) -> None:
    ended = await asyncio.to_thread(lent, lambda: new_run(Status.CANCELLED))
    async with working(FAST) as worker:
        waiting = await worker.ask_rows(lambda: queued_in_room(new_run, Chat(owner=chat.owner)))
        await worker.attempts.run(ended.pk)

        async def released() -> bool:
            return (await worker.row(waiting)).released_at is not None

        await worker.until(released)


async def test_a_broker_that_is_away_costs_a_run_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django.conf.settings.BROKER_URL", "redis://127.0.0.1:1/0")
    async with working(FAST) as worker:
        await worker.attempts.run(run.pk)

        assert (await worker.row(run)).status == Status.DONE


def queued_in_room(new_run: Callable[..., Run], chat: Chat) -> Run:
    chat.save()
    run = new_run(in_chat=chat)
    dispatcher()._redis.zadd(room_key(run.model_id, run.tier_id), {str(run.pk): 0})
    return run


def take_away(run: Run) -> None:
    with transaction.atomic():  # a renewal between the two would save it
        expire(run)
        claim(run)


def expire(run: Run) -> None:
    assert Run.objects.filter(pk=run.pk).update(lease_until="2000-01-01T00:00Z")


def lent(act: Callable[[], T]) -> T:
    """For a thread of its own, which must leave no connection open."""
    try:
        return act()
    finally:
        connections.close_all()


# Below, the acts on rows by themselves.


def an_outcome() -> Outcome:
    return Outcome(Status.DONE, finish_reason="stop", input_tokens=3, output_tokens=2)


def test_a_run_ends_once(run: Run) -> None:
    attempt = claim(run).attempt
    assert finish_run(run, attempt, an_outcome(), "first", uuid4())
    assert not finish_run(run, attempt, an_outcome(), "second", uuid4())

    assert [m.content for m in Message.objects.filter(chat=run.chat_id, role=Role.ASSISTANT)] == ["first"]


def test_ending_a_run_again_after_a_lost_reply_is_no_defeat(run: Run) -> None:
    attempt, answer_id = claim(run).attempt, uuid4()
    assert finish_run(run, attempt, an_outcome(), "text", answer_id)
    assert finish_run(run, attempt, an_outcome(), "text", answer_id)

    assert Message.objects.filter(chat=run.chat_id, role=Role.ASSISTANT).count() == 1


def test_a_lost_attempt_changes_nothing(run: Run) -> None:
    stale = claim(run, AN_HOUR_AGO)
    claim(run)
    before = Chat.objects.get(pk=run.chat_id).updated_at

    assert not finish_run(run, stale.attempt, an_outcome(), "text", uuid4())
    assert Chat.objects.get(pk=run.chat_id).updated_at == before
    assert not Message.objects.filter(chat=run.chat_id, role=Role.ASSISTANT).exists()


def leases() -> dict[UUID, datetime]:
    return {run.pk: run.lease_until for run in Run.objects.filter(lease_until__isnull=False) if run.lease_until}


def test_only_held_leases_are_renewed(new_run: Callable[..., Run], chat: Chat) -> None:
    first = new_run()
    second = new_run(in_chat=Chat.objects.create(owner=chat.owner))
    held, stale = claim(first), claim(second, AN_HOUR_AGO)
    claim(second)
    before = leases()

    nothing = Piece(0, "", ())
    assert renew([Progress(held, nothing), Progress(stale, nothing)], 2 * A_MINUTE).lost == {stale}
    after = leases()
    assert after[first.pk] > before[first.pk]
    assert after[second.pk] == before[second.pk]


@pytest.mark.parametrize("is_blameless", [True, False])
def test_a_lease_that_is_given_back_can_be_claimed_at_once(run: Run, *, is_blameless: bool) -> None:
    held = claim(run)
    assert give_back(held, is_blameless=is_blameless)

    assert claim(run).attempt == 2
    assert not give_back(held, is_blameless=is_blameless)
    assert Run.objects.get(pk=run.pk).hand_backs == is_blameless


async def test_the_engines_count_of_the_input_is_the_judge_of_ours(
    run: Run, new_run: Callable[..., Run], caplog: pytest.LogCaptureFixture
) -> None:
    async with working(FAST) as worker:
        await worker.attempts.run(run.pk)  # the fixture's row says 3
        exact = await worker.ask_rows(lambda: new_run(in_chat=Chat.objects.create(owner=run.chat.owner), text="Hi"))
        count = len((await worker.ask_rows(lambda: context.for_run(exact))).ids)
        await worker.ask_rows(lambda: Run.objects.filter(pk=exact.pk).update(input_tokens=count))
        await worker.attempts.run(exact.pk)
        tally = worker.attempts.meter.tallies[run.tier_id]

    assert tally.miscounted == 1
    [told] = [record.getMessage() for record in caplog.records if "run.miscounted" in record.getMessage()]
    assert str(run.pk) in told
