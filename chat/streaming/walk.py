"""What entries are to a reader: how far they lead, and what it is told on the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from chat.streaming import frames
from chat.streaming.place import Gap, Place, step
from inference.streams import Ended, Entry


@dataclass(frozen=True, slots=True)
class Walk:
    """The way from `start` to `end`, and the SSE bytes that a reader is told on it; `unread` is behind a gap."""

    start: Place
    end: Place
    told: bytes
    unread: Sequence[Entry]

    @property
    def lacks_end(self) -> bool:
        """Whether the run's end is behind the gap."""
        return any(isinstance(entry.event, Ended) for entry in self.unread)


def walk(start: Place, entries: Sequence[Entry]) -> Walk:
    """Read entries up to a gap. What the reader has is not told again."""
    place, told = start, list[bytes]()
    for index, entry in enumerate(entries):
        if place.has_passed(entry.id):
            continue
        try:
            place, event = step(place, entry)
        except Gap:
            return Walk(start, place, b"".join(told), entries[index:])
        if event:
            told.append(frames.frame(place, event))
    return Walk(start, place, b"".join(told), ())
