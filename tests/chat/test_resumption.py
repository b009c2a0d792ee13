"""An attempt that is not the first goes on where the last was cut off, whatever is left of that."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest
from redis.exceptions import ConnectionError as ConnectionLost

from chat import resumption
from chat.draft import Piece
from chat.emitted import Emitted
from chat.generation import DATABASE_THREADS
from chat.leases import Progress, renew
from chat.models import Checkpoint, Run, Status
from chat.resumption import Resumption
from chat.stopping import StopStrings
from inference.engine import Generation, Step
from inference.host import HandedBack
from inference.scripted_engine import Script, ScriptedEngine
from inference.stream_writer import RunStream, StreamWriter
from inference.streams import Delta, Entry, EntryId, Reset, Started, run_key
from inference.tokens import Decoder, Tokenizer
from tests.chat.generating import A_MINUTE, Worker, endings_of, told_text, working
from tests.real_model import model_folder

pytestmark = pytest.mark.django_db(transaction=True)

TEXT = "Grüße, 世界! سلام دنیا 👩‍👩‍👧‍👦 e\u0301. " * 3
FAST = Script(text=TEXT, tokens_per_s=5000, split_characters=True)  # a byte a token
GRADUAL = Script(text=TEXT, tokens_per_s=100, split_characters=True)
LONG = 6000


@pytest.fixture
def run(new_run: Callable[..., Run]) -> Run:
    run = new_run(text="What is up?")
    run.max_output_tokens = LONG
    run.save(update_fields=["max_output_tokens"])
    return run


@pytest.fixture
def ids() -> list[int]:
    """The answer's."""
    return Tokenizer.load(model_folder()).encode_bytes(TEXT)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Generation]:
    """What is asked of the engine from here on."""
    generations: list[Generation] = []
    generate = ScriptedEngine.generate

    async def noting(engine: ScriptedEngine, generation: Generation) -> AsyncGenerator[Step, None]:
        generations.append(generation)
        async for step in generate(engine, generation):
            yield step

    monkeypatch.setattr(ScriptedEngine, "generate", noting)
    return generations


async def dead_attempt(
    worker: Worker, run: Run, ids: Sequence[int], *, piece: int = 7, closed: bool = False, stops: Sequence[str] = ()
) -> str:
    """An attempt that told the text of `ids` and is heard of no more; returns the text."""
    claim = await worker.ask_rows(lambda: Run.objects.claim(run.pk, "dead", timedelta(0)))
    decoder, stop_strings = Decoder(Tokenizer.load(model_folder())), StopStrings(stops)
    text = ""
    async with StreamWriter(worker.redis) as writer:
        stream = await writer.open(run.pk, claim.attempt, run.model_id)
        for start in range(0, len(ids), piece):
            part = ids[start : start + piece]
            text += (made := stop_strings.push(decoder.push(part)))
            stream.push(made, part)
            await stream.flush()
        if closed:
            text += (made := decoder.flush())
            stream.push(made, ())
    return text


async def put_by(worker: Worker, run: Run, ids: Sequence[int], attempt: int = 1, text: str | None = None) -> None:
    """A renewal of that attempt stored the text of `ids`, or another."""
    text = Decoder(Tokenizer.load(model_folder())).push(ids) if text is None else text
    row = {"run": run, "attempt": attempt, "offset": 0, "text": text, "token_ids": list(ids)}
    await worker.ask_rows(lambda: Checkpoint.objects.create(**row))


async def finished(worker: Worker, run: Run) -> tuple[Run, list[Entry]]:
    """Bring it to its end; returns the row and what its stream holds."""
    await worker.attempts.run(run.pk)
    row, entries = await worker.row(run), await worker.entries(run)
    assert row.status == Status.DONE
    [ended] = endings_of(entries)
    assert row.answer is not None
    assert ended.data["chars"] == len(row.answer.content)
    assert row.answer.content == TEXT
    assert row.output_tokens == len(TEXT.encode())
    return row, entries


def told_ids(entries: Sequence[Entry], attempt: int) -> list[int]:
    """The ids that an attempt's entries hold."""
    deltas = [entry.event for entry in entries if entry.id.attempt == attempt and isinstance(entry.event, Delta)]
    return [token_id for delta in deltas for token_id in delta.token_ids]


async def test_a_run_that_is_handed_back_goes_on_elsewhere(run: Run, asked: list[Generation]) -> None:
    async with working(GRADUAL) as worker:
        attempt = asyncio.create_task(worker.attempts.run(run.pk))
        await worker.until_told(run, characters=5)
        await worker.attempts.hand_back()
        with pytest.raises(HandedBack):
            await attempt
    async with working(FAST, name="another") as worker:
        row, entries = await finished(worker, run)

    before = told_text([entry for entry in entries if entry.id.attempt == 1])
    first, second = asked
    emitted = [
        id_
        for entry in entries
        if isinstance(entry.event, Delta) and entry.id.attempt == 1
        for id_ in entry.event.token_ids
    ]
    assert second.prompt_ids == [*first.prompt_ids, *emitted]
    assert second.max_output_tokens == LONG - len(emitted)
    assert told_text(entries) == TEXT
    assert [entry.event for entry in entries if isinstance(entry.event, Reset)] == [Reset(len(before))]
    assert (row.attempt, row.worker, row.hand_backs, row.resumed_at) == (2, "another", 1, {"2": len(before)})


@pytest.mark.parametrize("cut", [0, 1, 4, 5, 6, 9, 10, 11, 30, 52, 60, 70, 71])
async def test_it_goes_on_wherever_the_cut_was(run: Run, ids: list[int], cut: int, asked: list[Generation]) -> None:
    async with working(FAST) as worker:
        told = await dead_attempt(worker, run, ids[:cut], piece=3)
        _, entries = await finished(worker, run)

    assert told_text(entries) == TEXT
    assert Reset(len(told)) in [entry.event for entry in entries]
    [generation] = asked
    assert generation.max_output_tokens == LONG - len(told_ids(entries, attempt=1))


@pytest.mark.parametrize("cut", [0, 20, 28, 33, 34, 60])
async def test_before_a_stop_string_within_it_and_behind_it(
    run: Run, ids: list[int], cut: int, asked: list[Generation]
) -> None:
    stop = "دنیا"
    met_at = len(TEXT[: TEXT.index(stop)].encode()) + len(stop.encode())
    async with working(FAST) as worker:
        await worker.ask_rows(lambda: Run.objects.filter(pk=run.pk).update(wishes={"stop": [stop]}))
        await dead_attempt(worker, run, ids[:cut], piece=20, stops=[stop])
        await worker.attempts.run(run.pk)
        row, entries = await worker.row(run), await worker.entries(run)

    assert row.answer
    assert row.answer.content == told_text(entries) == TEXT[: TEXT.index(stop)]
    assert row.finish_reason == "stop"
    assert bool(asked) == (cut < met_at)
    assert [entry.event for entry in entries if isinstance(entry.event, Reset) and entry.event.offset == 0] == (
        [] if cut else [Reset(0)]
    )


async def test_half_a_character_that_was_closed_too_soon_is_void(run: Run, ids: list[int]) -> None:
    half = len(TEXT[:2].encode()) + 1  # inside the third character
    async with working(FAST) as worker:
        told = await dead_attempt(worker, run, ids[:half], closed=True)
        _, entries = await finished(worker, run)

    assert told == TEXT[:2] + "\ufffd"
    assert told_text(entries) == TEXT
    assert Reset(2) in [entry.event for entry in entries]


async def test_with_the_stream_lost_it_goes_on_from_what_was_put_by(
    run: Run, ids: list[int], asked: list[Generation]
) -> None:
    async with working(FAST) as worker:
        told = await dead_attempt(worker, run, ids[:60])
        await put_by(worker, run, ids[:40])
        await worker.redis.delete(run_key(run.pk))
        row, entries = await finished(worker, run)

    known = Decoder(Tokenizer.load(model_folder())).push(ids[:40])
    assert len(known) < len(told)
    assert told_text(entries) == TEXT  # to new readers the stream is whole again
    assert row.resumed_at == {"2": len(known)}  # those who read more before are told so
    assert Reset(len(known)) in [entry.event for entry in entries]
    assert asked[0].max_output_tokens == LONG - 40


async def test_what_was_put_by_and_not_told_is_told(run: Run, ids: list[int]) -> None:
    async with working(FAST) as worker:
        await dead_attempt(worker, run, ids[:30])
        await put_by(worker, run, ids[:60])
        row, entries = await finished(worker, run)

    assert told_text(entries) == TEXT
    assert row.resumed_at == {"2": len(Decoder(Tokenizer.load(model_folder())).push(ids[:60]))}


async def test_entries_behind_a_gap_are_not_gone_on_from(run: Run, ids: list[int]) -> None:
    async with working(FAST) as worker:
        await dead_attempt(worker, run, ids[:60])
        third = (await worker.entries(run))[3].id
        await worker.redis.xdel(run_key(run.pk), str(third))
        _, entries = await finished(worker, run)

    before_the_gap = Emitted.in_stream(entries[:3], {}).text
    assert before_the_gap
    assert Reset(len(before_the_gap)) in [entry.event for entry in entries]


async def test_ids_that_do_not_make_the_text_begin_anew(run: Run, ids: list[int], asked: list[Generation]) -> None:
    async with working(FAST) as worker:
        await dead_attempt(worker, run, ids[:30])
        await put_by(worker, run, ids[:60], text="Something else")
        row, entries = await finished(worker, run)

    assert told_text(entries) == TEXT
    assert asked[0].max_output_tokens == LONG
    assert row.resumed_at == {"2": 0}


@pytest.mark.parametrize(("cap", "untold"), [(19, []), (20, [1])])
async def test_an_answer_at_its_cap_needs_no_engine(
    run: Run, ids: list[int], asked: list[Generation], cap: int, untold: list[int]
) -> None:
    async with working(FAST) as worker:
        await worker.ask_rows(lambda: Run.objects.filter(pk=run.pk).update(max_output_tokens=cap))
        told = await dead_attempt(worker, run, ids[:cap], piece=1)
        await worker.attempts.run(run.pk)
        row, entries = await worker.row(run), await worker.entries(run)

    assert [generation.max_output_tokens for generation in asked] == untold  # the id of half a character
    assert (row.status, row.finish_reason, row.output_tokens) == (Status.DONE, "length", cap)
    assert row.answer is not None
    assert row.answer.content == told_text(entries)
    assert row.answer.content.startswith(told)


async def test_any_number_of_attempts_make_one_text(run: Run, ids: list[int]) -> None:
    async with working(FAST) as worker:
        await dead_attempt(worker, run, ids[:25])
        for _ in range(2):
            async with working(GRADUAL, name="mortal") as mortal:
                attempt = asyncio.create_task(mortal.attempts.run(run.pk))
                before = len(told_text(await mortal.entries(run)))
                await mortal.until_told(run, before + 3)
                await mortal.attempts.hand_back()
                with pytest.raises(HandedBack):
                    await attempt
        row, entries = await finished(worker, run)

    assert told_text(entries) == TEXT
    assert row.attempt == 4
    assert sorted(row.resumed_at) == ["2", "3", "4"]


async def test_streams_that_stay_away_leave_what_was_put_by(
    run: Run, ids: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> list[Entry]:
        raise ConnectionLost

    monkeypatch.setattr(resumption, "PATIENCE_S", 0.0)
    monkeypatch.setattr(resumption, "read_rest", away)
    async with working(FAST) as worker:
        await dead_attempt(worker, run, ids[:60])
        await put_by(worker, run, ids[:40])
        row, _ = await finished(worker, run)

    assert row.resumed_at == {"2": len(Decoder(Tokenizer.load(model_folder())).push(ids[:40]))}


async def test_a_cancel_right_behind_the_claim_keeps_what_was_told(
    run: Run, ids: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with working(FAST) as worker:
        told = await dead_attempt(worker, run, ids[:30])
        begin_stream = StreamWriter.begin

        def cancelled_meanwhile(writer: StreamWriter, *args: Any) -> RunStream:
            worker.attempts.cancel(run.pk)
            return begin_stream(writer, *args)

        monkeypatch.setattr(StreamWriter, "begin", cancelled_meanwhile)
        await worker.attempts.run(run.pk)
        row, entries = await worker.row(run), await worker.entries(run)

    assert row.status == Status.CANCELLED
    assert row.answer is not None
    assert row.answer.content == told_text(entries) == told


async def test_leases_are_renewed_though_all_else_waits_for_the_database(run: Run) -> None:
    async with working(GRADUAL, lease=timedelta(seconds=0.3)) as worker:
        attempt = asyncio.create_task(worker.attempts.run(run.pk))
        await worker.until_told(run, characters=3)
        lets_go = threading.Event()
        stuck = [asyncio.create_task(worker.attempts._rows.act(lets_go.wait)) for _ in range(DATABASE_THREADS)]
        before = (await worker.row(run)).lease_until
        assert before is not None

        async def renewed_twice() -> bool:
            now = (await worker.row(run)).lease_until
            return now is not None and now - before > timedelta(seconds=0.15)

        try:
            await worker.until(renewed_twice)
        finally:
            lets_go.set()
            await asyncio.gather(*stuck)
            await worker.attempts.hand_back()
            with pytest.raises(HandedBack):
                await attempt


async def test_a_renewal_puts_by_what_is_new(run: Run) -> None:
    async with working(GRADUAL, lease=timedelta(seconds=0.3)) as worker:
        attempt = asyncio.create_task(worker.attempts.run(run.pk))

        async def put_by_often() -> bool:
            return await worker.ask_rows(run.checkpoints.count) > 3

        await worker.until(put_by_often)
        pieces = await worker.ask_rows(lambda: list(run.checkpoints.order_by("offset")))
        row = await worker.row(run)
        await worker.attempts.hand_back()
        with pytest.raises(HandedBack):
            await attempt

    text = ""
    for piece in pieces:
        assert piece.offset == len(text)
        text += piece.text
    assert TEXT.startswith(text)
    ids = [token_id for piece in pieces for token_id in piece.token_ids]
    assert Decoder(Tokenizer.load(model_folder())).push(ids) == text
    assert row.first_token_at is not None


def test_a_renewal_that_is_repeated_stores_the_longer_text_once(run: Run) -> None:
    claim = Run.objects.claim(run.pk, "worker", A_MINUTE)
    renew([Progress(claim, Piece(0, "Hel", (1,)))], A_MINUTE)
    renew([Progress(claim, Piece(0, "Hello", (1, 2)))], A_MINUTE)

    assert list(run.checkpoints.values_list("offset", "text", "token_ids")) == [(0, "Hello", [1, 2])]


def test_a_lost_attempt_puts_nothing_by(run: Run) -> None:
    stale = Run.objects.claim(run.pk, "worker", timedelta(0))
    Run.objects.claim(run.pk, "another", A_MINUTE)
    renew([Progress(stale, Piece(0, "Hello", (1, 2)))], A_MINUTE)

    assert not run.checkpoints.exists()
    assert not Run.objects.resume(stale, 3)


# Below, the pure part.


def entry(attempt: int, seq: int, event: Any) -> Entry:
    return Entry(EntryId(attempt, seq), event)


def test_a_stream_is_read_up_to_its_first_gap() -> None:
    told = [entry(1, 0, Started(1, "m")), entry(1, 1, Delta("ab", 0, (1, 2))), entry(1, 3, Delta("ef", 4, (5,)))]

    assert Emitted.in_stream(told, {}) == Emitted("ab", (1, 2), 1)


def test_a_later_attempt_fills_a_gap() -> None:
    told = [
        *(entry(1, 1, Delta("ab", 0, (1,))), entry(1, 3, Delta("ef", 4, (5,)))),
        *(entry(2, 1, Delta("cd", 2, (3,))), entry(2, 2, Reset(4)), entry(2, 3, Delta("EF", 4, (6,)))),
    ]

    assert Emitted.in_stream(told, {}) == Emitted("abcdEF", (1, 3, 6), 2)


def test_what_was_reset_is_not_emitted() -> None:
    told = [entry(1, 1, Delta("ab", 0, (1,))), entry(1, 2, Delta("cd", 2, (2,))), entry(2, 1, Reset(2))]

    assert Emitted.in_stream(told, {}) == Emitted("ab", (1,), 1)


def test_what_a_sleeper_wrote_into_a_lost_stream_is_not_gone_on_from() -> None:
    sleeper = entry(1, 51, Delta("AB", 0, (1, 2)))
    third = [entry(3, 1, Reset(2)), entry(3, 2, Delta("cd", 2, (3, 4)))]

    assert Emitted.in_stream([sleeper, *third], {2: 0, 3: 2}) == Emitted("", (), 0)
    assert Emitted.in_stream([sleeper], {2: 1}) == Emitted("", (), 0)
    assert Emitted.in_stream([sleeper], {2: 2}) == Emitted("AB", (1, 2), 1)


def checkpoint(attempt: int, offset: int, text: str, *ids: int) -> Checkpoint:
    return Checkpoint(attempt=attempt, offset=offset, text=text, token_ids=list(ids))


def test_checkpoints_make_one_text() -> None:
    pieces = [checkpoint(2, 3, "de", 4), checkpoint(1, 0, "ab", 1), checkpoint(1, 2, "c\ufffd", 2, 3)]

    # The character that was closed too soon is void; its ids stay.
    assert Emitted.put_by(pieces, {2: 3}) == Emitted("abcde", (1, 2, 3, 4), 2)
    assert Emitted.put_by([*pieces, checkpoint(3, 0, "X", 9)], {2: 3, 3: 0}) == Emitted("X", (9,), 3)


def test_what_was_put_by_and_voided_is_not_gone_on_from() -> None:
    pieces = [checkpoint(1, 0, "ab", 1), checkpoint(1, 2, "cd", 2)]

    assert Emitted.put_by(pieces, {2: 3}) == Emitted("ab", (1,), 1)


def test_two_attempts_that_wrote_differently_are_told_anew() -> None:
    left = Resumption.behind("abX", (1, 2, 3), Emitted("abcd", (1, 2, 4, 5), 1))

    assert left == Resumption(0, [Reset(0), Delta("abX", 0, (1, 2, 3))])


def test_the_later_attempt_counts_though_it_got_less_far() -> None:
    assert Emitted("abc", (1, 2, 3), 1).or_later(Emitted("aX", (1, 9), 2)) == Emitted("aX", (1, 9), 2)
