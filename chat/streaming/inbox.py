"""Where notes for one reader wait until it takes them."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Generic, TypeVar

NOTES = 512

Note = TypeVar("Note")


@dataclass(frozen=True, slots=True)
class Dropped:
    """No more will come: the reader was too slow, or the process is ending. It comes back by its last id."""


class Inbox(Generic[Note]):
    """Of one reader. Bounded, so that one who does not read costs little."""

    def __init__(self) -> None:
        self._notes: deque[Note | Dropped] = deque()
        self._arrival: asyncio.Future[None] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether the reader has read everything."""
        return not self._notes

    async def next(self) -> Note | Dropped:
        """The oldest note not yet read."""
        while not self._notes:
            self._arrival = asyncio.get_running_loop().create_future()
            await self._arrival
        return self._notes.popleft()

    def put(self, note: Note) -> bool:
        """Leave a note; False when the reader has let its inbox fill up."""
        if len(self._notes) >= NOTES:
            return False
        self._add(note)
        return True

    def end(self) -> None:
        """Throw away what is unread and tell the reader to leave."""
        self._notes.clear()
        self._add(Dropped())

    def _add(self, note: Note | Dropped) -> None:
        self._notes.append(note)
        if self._arrival and not self._arrival.done():
            self._arrival.set_result(None)
