"""The checker finds each kind of violation that is sown into a clean record, and none in the clean one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from inference.streams import Delta, Ended, Entry, EntryId, Reset, Started
from tests.faults.checker import CHECKS, violations
from tests.faults.records import Asked, Change, Gauges, Read, Records, Request, Row, Verdict
from tests.sse_client import Event

BORN = datetime(2026, 1, 1, tzinfo=UTC)
RUN, ANSWER, STOPPED = uuid4(), uuid4(), uuid4()
TEXT = "Hello, wörld 👋🏽"
USAGE = {"input_tokens": 7, "cached_tokens": 1, "output_tokens": 9, "charged_tokens": 0}
END = {
    "status": "done",
    "message_id": str(ANSWER),
    "finish_reason": "stop",
    "chars": len(TEXT),
    "sha256": hashlib.sha256(TEXT.encode()).hexdigest(),
    "usage": USAGE,
}


def row(run_id: UUID, status: str, attempt: int, answer: UUID | None, reason: str) -> Row:
    """One that took five seconds."""
    ended = BORN + timedelta(seconds=5)
    return Row(run_id, status, attempt, 0, answer, reason, "", 7, 1, 9, {}, f"Q {run_id}", BORN, ended)


def changes(run_id: UUID, *steps: tuple[str, int]) -> list[Change]:
    """A history, a second a step."""
    return [
        Change(run_id, status, attempt, "worker", BORN + timedelta(seconds=n))
        for n, (status, attempt) in enumerate(steps)
    ]


def clean() -> Records:
    """Two runs: one done at the second attempt and read twice, one stopped before it began."""
    started = [Event("started", {"attempt": 1}, "1-0-0"), Event("delta", {"text": TEXT[:5], "offset": 0}, "1-1-5")]
    rest = Event("delta", {"text": TEXT[5:], "offset": 5}, f"2-2-{len(TEXT)}")
    ended = Event("done", END, f"2-4294967295-{len(TEXT)}")
    nothing = {"chars": 0, "sha256": hashlib.sha256(b"").hexdigest(), "message_id": None}
    stopped = END | nothing | {"status": "cancelled", "finish_reason": "cancelled"}
    return Records(
        rows=[row(RUN, "done", 2, ANSWER, "stop"), row(STOPPED, "cancelled", 0, None, "cancelled")],
        changes=[
            *changes(RUN, ("queued", 0), ("streaming", 1), ("streaming", 2), ("done", 2)),
            *changes(STOPPED, ("queued", 0), ("cancelled", 0)),
        ],
        messages={ANSWER: TEXT},
        streams={
            RUN: [
                Entry(EntryId(1, 0), Started(1, "default")),
                Entry(EntryId(1, 1), Delta(TEXT[:7], 0)),
                Entry(EntryId(2, 0), Started(2, "default")),
                Entry(EntryId(2, 1), Reset(5)),
                Entry(EntryId(2, 2), Delta(TEXT[5:], 5)),
                Entry(EntryId.terminal(2), Ended("done", END)),
            ],
            STOPPED: [Entry(EntryId.terminal(0), Ended("cancelled", stopped))],
        },
        reads=[
            Read(RUN, TEXT, [*started, Event("started", {"attempt": 2}, "2-0-5"), rest, ended]),
            Read(RUN, TEXT, [Event("delta", {"text": TEXT, "offset": 0}, f"2-2-{len(TEXT)}"), ended]),
            Read(STOPPED, "", [Event("cancelled", stopped, "0-4294967295-0")]),
        ],
        asked=[Asked("a", RUN), Asked("a", RUN), Asked("b", STOPPED)],
        requests=[Request("ask", Verdict.SERVED, 1, 0.1), Request("ask", Verdict.REFUSED, 1, 0.1, "503 away")],
        gauges=Gauges(workers={"gpu1": {"in_hand": 0, "running": 0, "waiting": 0}}),
    )


Sow = Callable[[Records], None]


def change_row(**columns: object) -> Sow:
    """The first run's row is otherwise."""

    def sow(records: Records) -> None:
        first, *others = records.rows
        records.rows = [replace(first, **columns), *others]  # type: ignore[arg-type]

    return sow


def change_history(*steps: tuple[str, int]) -> Sow:
    """The first run went another way."""

    def sow(records: Records) -> None:
        others = [change for change in records.changes if change.run_id != RUN]
        records.changes = [*changes(RUN, *steps), *others]

    return sow


def change_stream(at: int | slice, *entries: Entry) -> Sow:
    """These stand in the first run's stream instead."""

    def sow(records: Records) -> None:
        stream = list(records.streams[RUN])
        stream[at if isinstance(at, slice) else slice(at, at + 1)] = entries
        records.streams = {**records.streams, RUN: stream}

    return sow


def change_read(**seen: object) -> Sow:
    """The first reader saw something else."""

    def sow(records: Records) -> None:
        for name, value in seen.items():
            setattr(records.reads[0], name, value)

    return sow


def tell_reader(edit: Callable[[list[Event]], object]) -> Sow:
    """The first reader was told other events."""

    def sow(records: Records) -> None:
        events = list(records.reads[0].events)
        edit(events)
        records.reads[0].events = events

    return sow


def add_asked(key: str, run_id: UUID) -> Sow:
    """One more question was taken."""

    def sow(records: Records) -> None:
        records.asked = [*records.asked, Asked(key, run_id)]

    return sow


def change_gauges(gauges: Gauges) -> Sow:
    """Something is left."""

    def sow(records: Records) -> None:
        records.gauges = gauges

    return sow


def double_row(records: Records) -> None:
    """The same question was stored twice."""
    records.rows = [*records.rows, replace(records.rows[0], id=uuid4())]


def answer_wrongly(records: Records) -> None:
    """Somebody got a 500."""
    records.requests = [*records.requests, Request("ask", Verdict.WRONG, 1, 0.1, "500")]


def resurrect(records: Records) -> None:
    """The stopped run went on."""
    records.changes = [*records.changes, *changes(STOPPED, ("streaming", 1))]


LATE = Entry(EntryId(1, 9), Delta("!", len(TEXT)))
GAPS = END | {"chars": 1}
SOWN: dict[str, tuple[str, Sow]] = {
    "a run without an end": ("every run ends", change_row(status="streaming", finished_at=None)),
    "an end that the row lost": ("terminal is never left", change_row(status="failed")),
    "no terminal transition": ("one terminal transition", change_history(("queued", 0), ("streaming", 1))),
    "two terminal transitions": (
        "one terminal transition",
        change_history(("queued", 0), ("streaming", 1), ("done", 1), ("cancelled", 1)),
    ),
    "life after the end": ("terminal is never left", resurrect),
    "a run that was born streaming": ("terminal is never left", change_history(("streaming", 1), ("done", 1))),
    "an attempt left out": (
        "attempts grow by one",
        change_history(("queued", 0), ("streaming", 1), ("streaming", 3), ("done", 3)),
    ),
    "an attempt taken back": (
        "attempts grow by one",
        change_history(("queued", 0), ("streaming", 2), ("streaming", 1), ("done", 2)),
    ),
    "too many attempts": ("attempts are bounded", change_row(attempt=7, hand_backs=1)),
    "a burial too late": ("attempts are bounded", change_row(attempt=7, error_code="worker_lost")),
    "an end that took too long": ("every run ends in time", change_row(finished_at=BORN + timedelta(hours=1))),
    "a stream without an end": ("one terminal event a stream", change_stream(slice(5, None))),
    "a stream with two ends": (
        "one terminal event a stream",
        change_stream(
            slice(5, None), Entry(EntryId(2, 9), Ended("done", END)), Entry(EntryId.terminal(2), Ended("done", END))
        ),
    ),
    "an entry behind the end": (
        "the terminal event is the last",
        change_stream(slice(6, None), Entry(EntryId(3, 0), Started(3, "default"))),
    ),
    "an end of other counts": (
        "the end equals the row",
        change_stream(5, Entry(EntryId.terminal(2), Ended("done", END | {"usage": {}}))),
    ),
    "an end of another status": (
        "the end equals the row",
        change_stream(5, Entry(EntryId.terminal(2), Ended("failed", END))),
    ),
    "an entry behind a later fence": (
        "attempts are fenced off",
        change_stream(4, LATE, Entry(EntryId(2, 2), Delta(TEXT[5:], 5))),
    ),
    "a gap in a stream": ("deltas are seamless", change_stream(1, Entry(EntryId(1, 1), Delta(TEXT[:4], 1)))),
    "a reset beyond the text": ("deltas are seamless", change_stream(3, Entry(EntryId(2, 1), Reset(50)))),
    "a stream of other text": (
        "deltas are the message",
        change_stream(4, Entry(EntryId(2, 2), Delta(TEXT[5:].upper(), 5))),
    ),
    "a reader who was told what does not fit": ("deltas are seamless", change_read(broke="offset 3 of 5")),
    "a reader who waits for ever": ("every reader is told the end", change_read(gave_up=True)),
    "a reader with other text": ("deltas are the message", change_read(text=TEXT[:-1])),
    "a reader with text that is not stored": ("deltas are the message", change_row(answer_id=None)),
    "a reader told no end": ("one terminal event a reader", tell_reader(lambda events: events.pop())),
    "a reader told two ends": ("one terminal event a reader", tell_reader(lambda events: events.append(events[-1]))),
    "a reader told more behind the end": (
        "one terminal event a reader",
        tell_reader(lambda events: events.append(Event("started", {}, "3-0-0"))),
    ),
    "a reader told another end": (
        "the end equals the row",
        tell_reader(lambda events: events.__setitem__(-1, Event("done", GAPS, "2-4294967295-1"))),
    ),
    "a reader told by an older attempt": (
        "nothing of an older attempt",
        tell_reader(lambda events: events.insert(3, Event("delta", {"text": "", "offset": 5}, "1-2-5"))),
    ),
    "a live run left": ("counts return to zero", change_gauges(Gauges(live_runs=1))),
    "a message left": ("counts return to zero", change_gauges(Gauges(broker_keys=["gen.default.free"]))),
    "a request left in an engine": ("counts return to zero", change_gauges(Gauges(workers={"gpu1": {"running": 1}}))),
    "an accepted run that is not there": ("no accepted run is missing", add_asked("c", uuid4())),
    "a key with two runs": ("one run a key", add_asked("a", STOPPED)),
    "a question stored twice": ("one run a key", double_row),
    "an answer that is no proper refusal": ("requests are served or properly refused", answer_wrongly),
}


def test_a_clean_record_has_no_violations() -> None:
    assert violations(clean()) == []


@pytest.mark.parametrize("name", SOWN)
def test_a_sown_violation_is_found(name: str) -> None:
    invariant, sow = SOWN[name]
    records = clean()

    sow(records)

    assert invariant in {found.invariant for found in violations(records)}


def test_every_check_has_something_sown_for_it() -> None:
    finders = set()
    for _, sow in SOWN.values():
        records = clean()
        sow(records)
        finders |= {check.__name__ for check in CHECKS if any(check(records))}

    assert finders == {check.__name__ for check in CHECKS}
