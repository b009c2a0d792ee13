"""A worker told to stop a run: wherever it is in its course, the text so far stays and the slot is free."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from redis.exceptions import RedisError

from chat import cancelling, context, generation, last_words
from chat.draft import Piece
from chat.leases import Progress, renew
from chat.models import Chat, Claim, Message, Role, Run, Status
from inference.scripted_engine import Script
from inference.streams import EntryId, control_channel
from tests.chat.generating import A_MINUTE, Worker, endings_of, told_text, working

pytestmark = pytest.mark.django_db(transaction=True)

TEXT = "Grüße, 世界! سلام دنیا 👩‍👩‍👧‍👦 e\u0301. "
# A minute of text: whoever ends earlier was stopped.
SLOW = Script(text=TEXT * 50, tokens_per_s=100, split_characters=True)
IN_PREFILL = Script(text=TEXT, first_token_ms=60_000)
A_BLINK = timedelta(seconds=0.3)
SOON_S = 8


@pytest.fixture
def run(new_run: Callable[..., Run]) -> Run:
    run = new_run(text="What is up?")
    run.max_output_tokens = 6000
    run.input_tokens = len(context.for_run(run).ids)
    run.save(update_fields=["max_output_tokens", "input_tokens"])
    return run


@asynccontextmanager
async def answering(worker: Worker, run: Run) -> AsyncIterator[asyncio.Task[int]]:
    """The run under way, which is over soon after the block."""
    task = asyncio.create_task(worker.attempts.run(run.pk))
    try:
        async with asyncio.timeout(SOON_S):
            yield task
            await task
    finally:
        task.cancel()


async def cancel(worker: Worker, run: Run) -> Run:
    """As the web does, from a thread."""
    return await worker.ask_rows(lambda: cancelling.cancel(run))


async def until_it_runs(worker: Worker) -> None:
    async def runs() -> bool:
        return worker.engine.load().running == 1

    await worker.until(runs)


async def test_the_text_so_far_is_the_answer(run: Run) -> None:
    async with working(SLOW) as worker:
        async with answering(worker, run):
            await worker.until_told(run, characters=20)
            assert (await cancel(worker, run)).status == Status.STREAMING
        row, entries = await worker.row(run), await worker.entries(run)

        assert worker.engine.load().running == 0
    assert (row.status, row.finish_reason) == (Status.CANCELLED, "cancelled")
    assert row.answer is not None
    text = row.answer.content
    assert (row.answer.role, row.answer.position) == (Role.ASSISTANT, 2)
    assert text == told_text(entries)
    assert 20 <= len(text) < len(TEXT * 50)
    assert entries[-1].id == EntryId.terminal(1)
    [ended] = endings_of(entries)
    assert ended.data == {
        "status": "cancelled",
        "message_id": str(row.answer_id),
        "finish_reason": "cancelled",
        "chars": len(text),
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
        "usage": {
            "input_tokens": run.input_tokens,
            "cached_tokens": 0,
            "output_tokens": row.output_tokens,
            "charged_tokens": run.input_tokens + row.output_tokens,
        },
        "refunded_tokens": run.max_output_tokens - row.output_tokens,
    }
    # The script's tokens are bytes; of a character that was not whole some may have come.
    assert 0 <= row.output_tokens - len(text.encode()) < 4


async def test_a_character_that_was_not_whole_is_dropped_for_readers_and_in_the_row_alike(run: Run) -> None:
    script = Script(text="👩" * 500, tokens_per_s=100, split_characters=True)
    async with working(script) as worker:
        async with answering(worker, run):
            await worker.until_told(run, characters=2)
            await cancel(worker, run)
        row, entries = await worker.row(run), await worker.entries(run)

    assert row.answer is not None
    assert row.answer.content == told_text(entries) == "👩" * len(row.answer.content)


async def test_before_the_first_token_nothing_is_the_answer(run: Run) -> None:
    async with working(IN_PREFILL) as worker:
        async with answering(worker, run):
            await until_it_runs(worker)
            await cancel(worker, run)
        row, entries = await worker.row(run), await worker.entries(run)

        assert worker.engine.load().running == worker.engine.load().waiting == 0
    assert (row.status, row.answer, row.output_tokens) == (Status.CANCELLED, None, 0)
    [ended] = endings_of(entries)
    assert (ended.data["message_id"], ended.data["chars"]) == (None, 0)


async def test_a_run_that_waits_for_a_slot_of_the_engine_is_stopped_too(
    new_run: Callable[..., Run], run: Run, chat: Chat
) -> None:
    async with working(Script(text=TEXT * 50, slots=1)) as worker:
        first = await worker.ask_rows(lambda: new_run(in_chat=Chat.objects.create(owner=chat.owner)))
        async with answering(worker, first):
            await until_it_runs(worker)
            async with answering(worker, run):

                async def waits() -> bool:
                    return worker.engine.load().waiting == 1

                await worker.until(waits)
                await cancel(worker, run)
            assert (await worker.row(run)).status == Status.CANCELLED
            assert worker.engine.load().waiting == 0
            await cancel(worker, first)


async def test_while_the_prompt_is_tokenised(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def cancel_and_tokenise(run: Run) -> context.Prompt:
        cancelling.cancel(run)
        return for_run(run)

    for_run = context.for_run
    monkeypatch.setattr(context, "for_run", cancel_and_tokenise)
    async with working(SLOW) as worker:
        async with answering(worker, run):
            pass
        assert (await worker.row(run)).answer is None
        assert worker.engine.load().peak_running == 0


async def test_a_run_that_was_cancelled_before_its_claim_never_meets_the_engine(run: Run) -> None:
    async with working(SLOW) as worker:
        await worker.ask_rows(lambda: Run.objects.filter(pk=run.pk).update(cancel_requested_at="2026-01-01T00:00Z"))
        async with answering(worker, run):
            pass
        row, entries = await worker.row(run), await worker.entries(run)

        assert worker.engine.load().peak_running == 0
    assert (row.status, row.attempt, row.answer) == (Status.CANCELLED, 1, None)
    assert len(endings_of(entries)) == 1


async def test_a_nudge_between_the_claim_and_its_arrival_in_the_worker_is_not_lost(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def claim_and_be_told(*args: Any) -> tuple[Run, Claim]:
        claimed = claim_run(*args)
        asyncio.run_coroutine_threadsafe(tell(), loop).result()
        return claimed

    async def tell() -> None:
        worker.attempts.cancel(run.pk)

    claim_run, loop = generation.claim_run, asyncio.get_running_loop()
    monkeypatch.setattr(generation, "claim_run", claim_and_be_told)
    async with working(SLOW) as worker:
        async with answering(worker, run):
            pass

        assert (await worker.row(run)).status == Status.CANCELLED
        assert worker.engine.load().peak_running == 0


async def test_a_lost_nudge_costs_a_renewal(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_words, "nudge", lambda *_: None)
    async with working(SLOW, lease=A_BLINK) as worker:
        async with answering(worker, run):
            await worker.until_told(run, characters=5)
            await cancel(worker, run)
        row, entries = await worker.row(run), await worker.entries(run)

    assert row.status == Status.CANCELLED
    assert row.answer is not None
    assert row.answer.content == told_text(entries)


async def test_what_the_worker_is_told_twice_it_does_once(run: Run) -> None:
    async with working(SLOW) as worker:
        async with answering(worker, run):
            await worker.until_told(run, characters=5)
            for _ in range(5):
                await cancel(worker, run)

        assert len(endings_of(await worker.entries(run))) == 1
        assert (await worker.row(run)).status == Status.CANCELLED
        assert (await cancel(worker, run)).status == Status.CANCELLED


async def test_an_answer_that_is_finished_is_done_whoever_cancels(run: Run) -> None:
    async with working(Script(text="Short.", tokens_per_s=2000)) as worker:
        async with answering(worker, run):
            pass
        assert (await cancel(worker, run)).status == Status.DONE
        worker.attempts.cancel(run.pk)

        assert (await worker.row(run)).status == Status.DONE


async def test_the_other_runs_of_a_worker_go_on(new_run: Callable[..., Run], run: Run, chat: Chat) -> None:
    async with working(Script(text=TEXT, tokens_per_s=100)) as worker:
        other = await worker.ask_rows(lambda: new_run(in_chat=Chat.objects.create(owner=chat.owner)))
        async with answering(worker, other), answering(worker, run):
            await worker.until_told(run, characters=1)
            await cancel(worker, run)

        assert [(await worker.row(each)).status for each in (run, other)] == [Status.CANCELLED, Status.DONE]


async def test_an_outage_of_redis_does_not_deafen_a_worker(run: Run) -> None:
    async with working(SLOW) as worker:
        async with answering(worker, run):
            await worker.until_told(run, characters=5)
            assert await worker.redis.client_kill_filter(_type="pubsub")

            async def hears_again() -> bool:
                [(_, listeners)] = await worker.redis.pubsub_numsub(control_channel("gpu@test"))
                return bool(listeners)

            await worker.until(hears_again)
            await cancel(worker, run)

        assert (await worker.row(run)).status == Status.CANCELLED


def test_streams_that_are_away_do_not_keep_a_run_from_ending(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django.conf.settings.STREAMS_URL", "redis://127.0.0.1:1/0")
    with pytest.raises(RedisError):
        last_words._client().ping()

    assert cancelling.cancel(run).status == Status.CANCELLED


# A worker that is gone.


async def test_a_run_whose_worker_is_gone_ends_with_what_its_readers_have(run: Run) -> None:
    async with working(SLOW) as worker:
        attempt = asyncio.create_task(worker.attempts.run(run.pk))
        await worker.until_told(run, characters=10)
        await worker.ask_rows(lambda: expire(run))
        ended = await cancel(worker, run)
        told = await worker.entries(run)
        async with asyncio.timeout(SOON_S):
            await attempt  # it was not gone after all, and is fenced off

        assert await worker.entries(run) == told
        row = await worker.row(run)
    assert (ended.status, ended.attempt) == (row.status, row.attempt) == (Status.CANCELLED, 2)
    assert row.answer is not None
    assert row.answer.content == told_text(told)
    assert len(row.answer.content) >= 10
    assert told[-1].id == EntryId.terminal(2)
    [ending] = endings_of(told)
    assert ending.data["chars"] == len(row.answer.content)
    assert ending.data["usage"]["output_tokens"] == row.output_tokens > 0


async def test_a_run_that_was_handed_back_ends_at_once_and_its_message_finds_nothing_to_do(run: Run) -> None:
    async with working(SLOW) as worker:
        attempt = asyncio.create_task(worker.attempts.run(run.pk))
        await worker.until_told(run, characters=10)
        await worker.attempts.hand_back()
        await asyncio.gather(attempt, return_exceptions=True)
        assert (await cancel(worker, run)).status == Status.CANCELLED
    async with working(SLOW, name="another") as worker:
        await worker.attempts.run(run.pk)
        row = await worker.row(run)
        assert worker.engine.load().peak_running == 0
    assert row.answer is not None


async def test_a_worker_that_takes_over_a_cancelled_run_keeps_the_text_so_far(run: Run) -> None:
    async with working(SLOW) as worker:
        attempt = asyncio.create_task(worker.attempts.run(run.pk))
        await worker.until_told(run, characters=10)
        await worker.attempts.hand_back()
        await asyncio.gather(attempt, return_exceptions=True)
        await worker.ask_rows(lambda: Run.objects.filter(pk=run.pk).update(cancel_requested_at="2026-01-01T00:00Z"))
    async with working(SLOW, name="another") as worker:
        await worker.attempts.run(run.pk)
        row, entries = await worker.row(run), await worker.entries(run)

    assert (row.status, row.attempt) == (Status.CANCELLED, 2)
    assert row.answer is not None
    assert row.answer.content == told_text(entries)


def expire(run: Run) -> None:
    assert Run.objects.filter(pk=run.pk).update(lease_until="2000-01-01T00:00Z")


# A chat that is deleted under its worker.


async def test_a_worker_whose_run_was_deleted_stops_quietly_and_serves_on(
    run: Run, new_run: Callable[..., Run], caplog: pytest.LogCaptureFixture
) -> None:
    async with working(SLOW, lease=A_BLINK) as worker:
        async with answering(worker, run):
            await worker.until_told(run, characters=5)
            await worker.ask_rows(lambda: delete_unannounced(run))

        assert worker.engine.load().running == 0
        assert endings_of(await worker.entries(run)) == []
    assert "Traceback" not in caplog.text
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def delete_unannounced(run: Run) -> None:
    """As the service deletes a chat, but that no worker is told."""
    with transaction.atomic():
        # A renewal under way has put by a checkpoint, or finds no run.
        assert Run.objects.select_for_update().filter(pk=run.pk).exists()
        Chat.objects.get(pk=run.chat_id).delete()


async def test_a_run_that_is_deleted_while_its_prompt_is_made_is_dropped_quietly(
    run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def delete_and_tokenise(run: Run) -> context.Prompt:
        Chat.objects.filter(pk=run.chat_id).delete()
        return for_run(run)

    for_run = context.for_run
    monkeypatch.setattr(context, "for_run", delete_and_tokenise)
    async with working(SLOW) as worker, answering(worker, run):
        pass

    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_a_renewal_tells_who_is_to_stop(run: Run) -> None:
    claim = Run.objects.claim(run.pk, "worker", A_MINUTE)
    held = Progress(claim, Piece(0, "", ()))
    assert not renew([held], A_MINUTE).cancelled

    assert Run.objects.request_cancel(run.pk)

    renewal = renew([held], A_MINUTE)
    assert (renewal.cancelled, renewal.lost) == (frozenset({claim}), frozenset())
    assert not Message.objects.filter(role=Role.ASSISTANT).exists()
