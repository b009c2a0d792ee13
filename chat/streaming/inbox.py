"""Where notes for one reader wait until it takes them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Generic, TypeVar

NOTES = 512

Note = TypeVar("Note")


@dataclass(frozen=True, slots=True)
class Dropped:
    """No more will come: the reader was too slow, or the process is ending. It comes back by its last id."""


class Inbox(Generic[Note]):
    """Bounded, so that a reader who does not read costs little."""

    def __init__(self) -> None:
        self._notes: asyncio.Queue[Note | Dropped] = asyncio.Queue(NOTES)

    async def next(self) -> Note | Dropped:
        """The oldest note not yet read."""
        return await self._notes.get()

    def put(self, note: Note) -> bool:
        """Leave a note; False when the reader has let its inbox fill up."""
        try:
            self._notes.put_nowait(note)
        except asyncio.QueueFull:
            return False
        return True

    def end(self) -> None:
        """Throw away what is unread and tell the reader to leave."""
        while not self._notes.empty():
            self._notes.get_nowait()
        self._notes.put_nowait(Dropped())
