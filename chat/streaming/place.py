"""Where a reader is in a run, and what an entry means to a reader who is there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from chat.emitted import standing
from chat.streaming.written import Written
from inference.streams import TERMINAL_SEQ, Delta, Ended, Entry, EntryId, Event, MalformedId, Reset, Started

# At the latest; where it is an attempt's first entry behind the fence, text follows here.
RESET_SEQ = 2


class Gap(Exception):
    """An entry does not begin where the reader's text ends: something between them is missing."""


@dataclass(frozen=True, slots=True)
class Place:
    """The last entry a reader saw, and how many code points of the answer it has. As text it is the SSE id."""

    entry: EntryId | None = None
    offset: int = 0

    def __str__(self) -> str:
        return f"{self.entry}-{self.offset}" if self.entry else ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `<attempt>-<seq>-<offset>`. Raises `MalformedId`."""
        entry, _, offset = text.rpartition("-")
        if not (offset.isascii() and offset.isdigit() and len(offset) <= 10):
            raise MalformedId(text[:64])
        return cls(EntryId.parse(entry), int(offset))

    @property
    def is_at_end(self) -> bool:
        """Whether the reader saw the terminal event."""
        return self.entry is not None and self.entry.seq == TERMINAL_SEQ

    @property
    def heard(self) -> int:
        """The latest attempt of which the reader surely knows where it went on: its text may be void only beyond that.

        An attempt says so by its `reset`, the first or second entry behind its fence.
        """
        if self.entry is None:
            return 0
        has_heard = self.entry.attempt <= 1 or self.entry.seq >= RESET_SEQ
        return self.entry.attempt if has_heard else self.entry.attempt - 1

    def has_passed(self, entry: EntryId) -> bool:
        """Whether the reader saw `entry` already."""
        return self.entry is not None and entry <= self.entry


def step(place: Place, entry: Entry) -> tuple[Place, Event | None]:
    """Where `entry` takes the reader, and what it is to be told: nothing when it has that text. Raises `Gap`."""
    attempt = entry.id.attempt
    match entry.event:
        case Started():
            _demand(_knows(place, attempt - 1))
            return replace(place, entry=entry.id), entry.event
        case Delta(text, offset):
            _demand(offset <= place.offset and (_knows(place, attempt) or _is_next(place, entry.id)))
            fresh = entry.event if place.offset == offset else Delta(text[place.offset - offset :], place.offset)
            return Place(entry.id, fresh.end), fresh if fresh.text else None
        case Reset(offset):
            _demand(offset <= place.offset and _knows(place, attempt - 1))
            told_reset = entry.event if offset < place.offset else None
            return Place(entry.id, offset), told_reset
        case Ended(_, data):
            _demand(data["chars"] == place.offset and _knows(place, attempt))
            return replace(place, entry=entry.id), entry.event


def _knows(place: Place, attempt: int) -> bool:
    """Whether the reader holds nothing that `attempt`, or one before it, may have voided."""
    return place.offset == 0 or place.heard >= attempt


def _is_next(place: Place, entry: EntryId) -> bool:
    """Whether nothing is missing before `entry`, which is no fence: what precedes a `reset` agrees with it."""
    return place.entry is not None and entry == EntryId(place.entry.attempt, place.entry.seq + 1)


def _demand(is_seamless: bool) -> None:
    if not is_seamless:
        raise Gap


def bridge(place: Place, written: Written) -> list[tuple[Place, Event | None]]:
    """What a reader of a live run whose stream has lost entries is told; at the last place the stream is read again.

    Nothing when the reader knows of more than was written, as when it has read on since.
    """
    if _is_older(written, place):
        return []
    told: list[tuple[Place, Event | None]] = []
    for event in _missing(place, written.text, standing(written.resumed_at, place.heard, place.offset)):
        place = Place(_mark(place, _end(event), written), _end(event))
        told.append((place, event))
    if place.offset:
        place = replace(place, entry=_mark(place, place.offset, written))
    return [*told, (place, None)]


def _is_older(written: Written, place: Place) -> bool:
    """Whether the reader has been told something that came after."""
    if place.entry is None:
        return False
    attempt, seq = place.entry.attempt, place.entry.seq
    return attempt > written.attempt or (attempt > 1 and seq >= RESET_SEQ and attempt not in written.resumed_at)


def _mark(place: Place, offset: int, written: Written) -> EntryId:
    """Where a reader stands who knows of all attempts so far and has `offset` code points: what it need not read again.

    Not behind the present attempt's reset when that may still come, nor when text before it is missing.
    """
    attempt = written.attempt
    resumed_at = written.resumed_at.get(attempt)
    seq = 0 if resumed_at is None or offset < resumed_at else RESET_SEQ - (offset == resumed_at)
    mark = max(EntryId(attempt, seq), place.entry or EntryId.fence(0))
    # Ids grow: one that is taken back at its place had passed what comes before the reset.
    is_taken_back = mark == place.entry and offset < place.offset
    return EntryId(attempt, mark.seq + 1) if is_taken_back else mark


def conclude(place: Place, written: Written, ended: Ended) -> list[tuple[Place, Event]]:
    """What a reader still has to be told of a run that is over."""
    told: list[tuple[Place, Event]] = []
    for event in _missing(place, written.text, _agreeing(place, written)):
        seq = TERMINAL_SEQ - 2 if isinstance(event, Reset) else TERMINAL_SEQ - 1
        place = Place(EntryId(written.attempt, seq), _end(event))
        told.append((place, event))
    return [*told, (Place(EntryId.terminal(written.attempt), place.offset), ended)]


def _agreeing(place: Place, written: Written) -> int:
    """How much of the reader's text is surely the message's beginning."""
    kept = standing(written.resumed_at, place.heard, place.offset)
    length = len(written.text)
    if place.offset <= length:
        return kept
    # More than the last attempt wrote cannot be of this run.
    return min(kept, length) if place.heard < written.attempt else 0


def _missing(place: Place, text: str, kept: int) -> list[Reset | Delta]:
    """What turns the reader's text, of which `kept` code points stand, into `text` if that is longer."""
    resets = [Reset(kept)] if kept < place.offset else []
    rest = text[kept:]
    return [*resets, Delta(rest, kept)] if rest else [*resets]


def _end(event: Reset | Delta) -> int:
    return event.offset if isinstance(event, Reset) else event.end
