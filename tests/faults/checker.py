"""Says of a world's records which invariants do not hold; knows nothing of how they came about."""

from __future__ import annotations

import hashlib
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

from inference.streams import Delta, Ended, Entry, EntryId, Reset
from tests.faults.budget_checks import BUDGET_CHECKS
from tests.faults.records import Change, Read, Records, Row, Verdict, Violation

TERMINAL = frozenset({"done", "cancelled", "failed"})
LEAVES_TO = {"": {"queued"}, "queued": {"streaming", "cancelled", "failed"}, "streaming": {"streaming", *TERMINAL}}
# Whoever ends a run whose worker is gone claims it once more.
BURIALS = 1


def violations(records: Records) -> list[Violation]:
    """All that is wrong, in the order of the invariants."""
    of_runs = [found for check in CHECKS for found in check(records)]
    return of_runs + [found for check in BUDGET_CHECKS for found in check(records.accounts)]


def every_run_ends(records: Records) -> Iterator[Violation]:
    """Every run is terminal."""
    for row in records.rows:
        if row.status not in TERMINAL:
            yield _of(row, "every run ends", f"still {row.status}")


def terminal_is_never_left(records: Records) -> Iterator[Violation]:
    """Exactly one terminal transition a run, into what its row says; attempts only grow, by one."""
    histories = _by_run(records.changes)
    for row in records.rows:
        history = histories.get(row.id, [])
        statuses = [change.status for change in history]
        if sum(status in TERMINAL for status in statuses) != 1:
            yield _of(row, "one terminal transition", " → ".join(statuses), history)
        elif statuses[-1] != row.status:
            yield _of(row, "terminal is never left", f"{' → '.join(statuses)}, and the row says {row.status}", history)
        for before, after in _steps(statuses):
            if after not in LEAVES_TO.get(before, set()):
                yield _of(row, "terminal is never left", f"went from {before or 'nothing'} to {after}", history)
        for earlier, later in itertools.pairwise(history):
            if later.attempt - earlier.attempt not in {0, 1}:
                yield _of(row, "attempts grow by one", f"from {earlier.attempt} to {later.attempt}", history)


def attempts_are_bounded(records: Records) -> Iterator[Violation]:
    """No run is tried more often than it may."""
    for row in records.rows:
        is_buried = row.cancel_requested_at is not None or row.error_code == "worker_lost"
        if row.attempt > records.bounds.max_attempts + row.hand_backs + BURIALS * is_buried:
            yield _of(row, "attempts are bounded", f"{row.attempt} attempts, {row.hand_backs} handed back")


def runs_end_in_time(records: Records) -> Iterator[Violation]:
    """Every run ends within its bound."""
    for row in records.rows:
        if row.finished_at is None:
            continue
        took_s = (row.finished_at - row.created_at).total_seconds()
        if took_s > records.bounds.run_s(row.attempt):
            yield _of(row, "every run ends in time", f"took {took_s:.0f} s over {row.attempt} attempts")


def streams_end_once(records: Records) -> Iterator[Violation]:
    """A stream has one terminal entry at most, its last, and that says what the row says."""
    rows = _rows(records)
    for run_id, entries in records.streams.items():
        ends = [entry for entry in entries if isinstance(entry.event, Ended)]
        if len(ends) > 1:
            yield Violation("one terminal event a stream", str(run_id), f"{len(ends)} of them", ends)
        if ends and entries[-1] is not ends[-1]:
            yield Violation("the terminal event is the last", str(run_id), f"{entries[-1]} follows", entries)
        row = rows.get(run_id)
        if row is not None and row.status in TERMINAL and not ends:
            yield _of(row, "one terminal event a stream", "what is left of the stream has no end")
        for end in ends:
            assert isinstance(end.event, Ended)
            yield from _unlike_row(records, run_id, end.event.status, end.event.data, "the stream's end")


def streams_hold_the_answer(records: Records) -> Iterator[Violation]:
    """A stream that has its beginning folds to the stored message, or to a part of it; attempts stand in order."""
    rows = _rows(records)
    for run_id, entries in records.streams.items():
        row = rows.get(run_id)
        if any(later.id <= earlier.id for earlier, later in itertools.pairwise(entries)):
            yield Violation("attempts are fenced off", str(run_id), "entries out of order", entries)
        if row is None or not entries or entries[0].id != EntryId.fence(1):
            continue
        text, misfit = _folded(entries)
        stored = records.messages.get(row.answer_id) if row.answer_id else None
        if misfit is not None:
            yield _of(row, "deltas are seamless", f"{misfit} does not fit in the stream", entries)
        # Its tail may be missing: the reaper, too, tells an end, and may be first when the streams come back.
        elif stored is not None and not stored.startswith(text):
            yield _of(row, "deltas are the message", f"the stream has {_differs(text, stored)}", entries)


def readers_see_one_answer(records: Records) -> Iterator[Violation]:
    """Every reader is told the stored message, whole and once, and its end once, as the row has it."""
    rows = _rows(records)
    for read in records.reads:
        row = rows.get(read.run_id)
        if read.broke:
            yield _told(read, "deltas are seamless", read.broke)
        if read.gave_up:
            yield _told(read, "every reader is told the end", "it never came")
        if row is None or read.broke or read.gave_up:
            continue
        stored = records.messages.get(row.answer_id, "") if row.answer_id else ""
        if read.text != stored:
            yield _told(read, "deltas are the message", f"the reader has {_differs(read.text, stored)}")
        ends = [event for event in read.events if event.name in TERMINAL]
        if len(ends) != 1 or read.events[-1] is not ends[0]:
            yield _told(read, "one terminal event a reader", f"told {[event.name for event in ends]}")
        for end in ends:
            yield from _unlike_row(records, row.id, end.name, end.data, "a reader's end")


def nothing_of_an_older_attempt(records: Records) -> Iterator[Violation]:
    """What a reader is told never falls back to an attempt before the one he has heard of."""
    for read in records.reads:
        attempts = [int(event.id.split("-")[0]) for event in read.events if event.id]
        if attempts != sorted(attempts):
            yield _told(read, "nothing of an older attempt", f"told by attempts {attempts}")


def nothing_is_left(records: Records) -> Iterator[Violation]:
    """Engines, slots, queues and live runs are at zero."""
    gauges = records.gauges
    if gauges.live_runs:
        yield Violation("counts return to zero", "rows", f"{gauges.live_runs} live runs")
    for key in gauges.broker_keys:
        yield Violation("counts return to zero", "broker", f"{key} is not empty")
    for reservation in gauges.reservations:
        yield Violation("counts return to zero", "streams", f"tokens are reserved for {reservation}")
    for worker, held in gauges.workers.items():
        if any(held.values()):
            yield Violation("counts return to zero", worker, str(dict(held)))


def what_was_taken_is_there(records: Records) -> Iterator[Violation]:
    """No run that was accepted is missing, but for those that their users deleted."""
    known = {row.id for row in records.rows} | records.discarded
    for asked in records.asked:
        if asked.run_id not in known:
            yield Violation("no accepted run is missing", str(asked.run_id), f"answered 202 to {asked.key}")


def one_run_a_key(records: Records) -> Iterator[Violation]:
    """The same key never makes two runs. Questions of different keys differ, so that rows tell it too."""
    runs: dict[str, set[UUID]] = defaultdict(set)
    for asked in records.asked:
        runs[asked.key].add(asked.run_id)
    for row in records.rows:
        runs[row.question].add(row.id)
    for name, made in runs.items():
        if len(made) > 1:
            yield Violation("one run a key", name, f"made {len(made)} runs", sorted(map(str, made)))


def requests_are_answered_properly(records: Records) -> Iterator[Violation]:
    """No request is answered with what is neither a service nor a proper refusal."""
    for request in records.requests:
        if request.verdict is Verdict.WRONG:
            yield Violation("requests are served or properly refused", request.what, request.said, request)


CHECKS: Sequence[Callable[[Records], Iterator[Violation]]] = (
    every_run_ends,
    terminal_is_never_left,
    attempts_are_bounded,
    runs_end_in_time,
    streams_end_once,
    streams_hold_the_answer,
    readers_see_one_answer,
    nothing_of_an_older_attempt,
    nothing_is_left,
    what_was_taken_is_there,
    one_run_a_key,
    requests_are_answered_properly,
)


def _of(row: Row, invariant: str, what: str, evidence: Any = None) -> Violation:
    return Violation(invariant, f"run {row.id}", what, evidence or row)


def _told(read: Read, invariant: str, what: str) -> Violation:
    return Violation(invariant, f"run {read.run_id}", what, read)


def _rows(records: Records) -> Mapping[UUID, Row]:
    return {row.id: row for row in records.rows}


def _by_run(changes: Sequence[Change]) -> Mapping[UUID, list[Change]]:
    histories: dict[UUID, list[Change]] = defaultdict(list)
    for change in changes:
        histories[change.run_id].append(change)
    return histories


def _steps(statuses: Sequence[str]) -> Iterator[tuple[str, str]]:
    return zip(["", *statuses], statuses, strict=False)


def _folded(entries: Sequence[Entry]) -> tuple[str, Entry | None]:
    """The text that entries make, and the first one that does not fit where it stands."""
    text = ""
    for entry in entries:
        match entry.event:
            case Delta(piece, offset):
                if offset != len(text):
                    return text, entry
                text += piece
            case Reset(offset):
                if offset > len(text):
                    return text, entry
                text = text[:offset]
    return text, None


def _unlike_row(
    records: Records, run_id: UUID, status: str, data: Mapping[str, Any], where: str
) -> Iterator[Violation]:
    row = _rows(records).get(run_id)
    if row is None:
        yield Violation("the end equals the row", f"run {run_id}", f"{where} is of a run that is not there", data)
        return
    text = records.messages.get(row.answer_id, "") if row.answer_id else ""
    meant = {
        "status": row.status,
        "message_id": str(row.answer_id) if row.answer_id else None,
        "finish_reason": row.finish_reason,
        "chars": len(text),
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
        "usage": row.usage,
    }
    said = {name: data.get(name) for name in meant}
    unlike = {name: (said[name], meant[name]) for name in meant if said[name] != meant[name]}
    if status != row.status or unlike:
        yield _of(row, "the end equals the row", f"{where}, {status}, differs (told, stored): {unlike}", data)


def _differs(text: str, stored: str) -> str:
    at = next((n for n, pair in enumerate(zip(text, stored, strict=False)) if pair[0] != pair[1]), None)
    at = min(len(text), len(stored)) if at is None else at
    return f"{len(text)} characters, stored are {len(stored)}; they part at {at}"
