"""The gate to an engine: a sequence goes in when the KV cache has blocks for all that those inside may become."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from inference.engine import Engine


class Gate:
    """Lets sequences in, first come first served, while the worst cases of all inside fit; the others wait outside.

    So none is ever preempted, which costs its whole prompt once more. One that is alone goes in whatever its size.
    Weakness: a worst case is reserved from the start, so an answer that ends early kept others waiting for nothing.
    Lives on one event loop; `limit` and `report` may be read in another thread. `on_room` is called as the limit rises.
    """

    def __init__(self, engine: Engine, on_room: Callable[[], None]) -> None:
        self._slots = engine.slots
        self._cache = engine.kv_cache
        self._window = engine.context_window
        self._on_room = on_room
        self._in_hand: set[Visit] = set()
        self._unsized: set[Visit] = set()
        self._queue: deque[Visit] = deque()
        self._patient: deque[Visit] = deque()
        self._inside: set[Visit] = set()
        self._waits = 0
        self._limit = self._reckoned()

    @property
    def limit(self) -> int:
        """How many runs the worker may hold now, those in hand included.

        As many more as fit even if each took a whole window. Failing that one, whose size is known soon; but none while
        somebody waits, nor more than the engine has slots.
        """
        return self._limit

    @property
    def free(self) -> int:
        """How many more that is."""
        return max(0, self._limit - len(self._in_hand))

    def report(self) -> dict[str, int]:
        """Blocks in all and those that nobody holds; how many runs wait for some now, and had to since the start."""
        return {
            "kv_blocks": self._cache.blocks,
            "kv_blocks_free": self._free_blocks,
            "kv_waiting": len(self._queue) + len(self._patient),
            "kv_waits": self._waits,
        }

    @contextmanager
    def expecting(self) -> Iterator[Visit]:
        """A run is in hand meanwhile, and as large as can be until it comes to the gate."""
        visit = Visit(self)
        self._in_hand.add(visit)
        self._unsized.add(visit)
        self._settle()
        try:
            yield visit
        finally:
            self._in_hand.discard(visit)
            self._unsized.discard(visit)
            self._settle()

    def blocks_for(self, tokens: int) -> int:
        """What a sequence takes that may grow to so many tokens: the engine ends it at the window."""
        return self._cache.blocks_for(min(tokens, self._window))

    def arrive(self, visit: Visit) -> None:
        """Stand in its queue, or go in at once."""
        self._unsized.discard(visit)
        self._queue_of(visit).append(visit)
        self._settle()
        self._waits += self.waits(visit)

    def waits(self, visit: Visit) -> bool:
        """Whether it stands in its queue."""
        return visit in self._queue_of(visit)

    def leave(self, visit: Visit) -> None:
        """Free its blocks, or its place in the queue."""
        self._inside.discard(visit)
        if self.waits(visit):
            self._queue_of(visit).remove(visit)
        self._settle()

    def _settle(self) -> None:
        """Let in who fits by now, and say so when the worker may hold more."""
        # Who is patient holds up nobody, and goes in when nobody else waits.
        while (queue := self._queue or self._patient) and self._fits(queue[0]):
            visit = queue.popleft()
            self._inside.add(visit)
            if not visit.turn.cancelled():  # else its task is about to leave
                visit.turn.set_result(None)
        limit, self._limit = self._limit, self._reckoned()
        if self._limit > limit:
            self._on_room()

    def _queue_of(self, visit: Visit) -> deque[Visit]:
        return self._patient if visit.is_patient else self._queue

    def _fits(self, visit: Visit) -> bool:
        return not self._inside or visit.blocks <= self._free_blocks

    @property
    def _free_blocks(self) -> int:
        return self._cache.blocks - sum(visit.blocks for visit in list(self._inside))

    def _reckoned(self) -> int:
        if self._queue:
            more = 0
        else:
            fitting = self._free_blocks // self.blocks_for(self._window) - len(self._unsized)
            more = max(fitting, 0 if self._unsized else 1)
        return min(self._slots, len(self._in_hand) + more)


class Visit:
    """One run's way through the gate."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self.blocks = 0
        self.is_patient = False
        self.turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @asynccontextmanager
    async def inside(self, tokens: int, *, is_patient: bool = False) -> AsyncIterator[None]:
        """Hold room for a sequence of `tokens` at most, once there is some; behind all others, if it `is_patient`.

        Raises what `dismiss` was told.
        """
        self.is_patient = is_patient
        self.blocks = self._gate.blocks_for(tokens)
        self._gate.arrive(self)
        try:
            await self.turn
            yield
        finally:
            self._gate.leave(self)

    def dismiss(self, reason: Exception) -> None:
        """Wait no more: `inside` raises the reason, and the next may go in. One that does not wait is no error."""
        if self._gate.waits(self):
            self._gate.leave(self)
            if not self.turn.cancelled():  # else its task is about to leave
                self.turn.set_exception(reason)
