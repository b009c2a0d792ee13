"""Where a reader is in a run, and what an entry means to a reader who is there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from inference.streams import TERMINAL_SEQ, Delta, Ended, Entry, EntryId, Event, MalformedId, Reset, Started


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

    def agrees_with(self, attempt: int) -> bool:
        """Whether the reader's text is surely what `attempt` went on from.

        A `reset` stands right behind its attempt's fence: a reader at the fence of a later attempt may hold void text.
        """
        if self.offset == 0:
            return True
        if self.entry is None or self.entry.attempt != attempt:
            return False
        return attempt == 1 or self.entry.seq > 0

    def has_passed(self, entry: EntryId) -> bool:
        """Whether the reader saw `entry` already."""
        return self.entry is not None and entry <= self.entry


def step(place: Place, entry: Entry) -> tuple[Place, Event | None]:
    """Where `entry` takes the reader, and what it is to be told: nothing when it has that text. Raises `Gap`."""
    match entry.event:
        case Started():
            return replace(place, entry=entry.id), entry.event
        case Delta(text, offset):
            _demand(offset <= place.offset)
            fresh = text[place.offset - offset :]
            told = Delta(fresh, place.offset) if fresh else None
            return Place(entry.id, place.offset + len(fresh)), told
        case Reset(offset):
            _demand(offset <= place.offset)
            told_reset = entry.event if offset < place.offset else None
            return Place(entry.id, offset), told_reset
        case Ended(_, data):
            # A run that left no message has no text to agree with.
            _demand(data["message_id"] is None or data["chars"] == place.offset)
            return replace(place, entry=entry.id), entry.event


def _demand(is_seamless: bool) -> None:
    if not is_seamless:
        raise Gap


def conclude(place: Place, attempt: int, text: str | None, ended: Ended) -> list[tuple[Place, Event]]:
    """What a reader still has to be told of a run that ended in `attempt`; `text` is None where it left no message."""
    told: list[tuple[Place, Event]] = []
    if text is not None:
        if not place.agrees_with(attempt) or place.offset > len(text):
            place = Place(EntryId(attempt, TERMINAL_SEQ - 2), 0)
            told.append((place, Reset(0)))
        if rest := text[place.offset :]:
            delta = Delta(rest, place.offset)
            place = Place(EntryId(attempt, TERMINAL_SEQ - 1), delta.end)
            told.append((place, delta))
    told.append((Place(EntryId.terminal(attempt), place.offset), ended))
    return told
