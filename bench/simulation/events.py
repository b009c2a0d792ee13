"""Simulated time: what is to happen, in the order of when."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

# Any moment will do that no real clock shows.
EPOCH_MS = 2_000_000_000_000


class Events:
    """A clock that stands still while something happens, and then jumps to what is next."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._order = count()  # of what is due at the same moment

    def now_ms(self) -> int:
        """The clock that the product's modules are given: milliseconds since the epoch."""
        return EPOCH_MS + round(self.now_s * 1000)

    def at(self, when_s: float, act: Callable[[], object]) -> None:
        """Do something then."""
        heapq.heappush(self._due, (when_s, next(self._order), act))

    def after(self, delay_s: float, act: Callable[[], object]) -> None:
        """Do something so much later."""
        self.at(self.now_s + delay_s, act)

    def run(self, until_s: float) -> None:
        """Let everything happen that is due until then."""
        while self._due and self._due[0][0] <= until_s:
            self.now_s, _, act = heapq.heappop(self._due)
            act()
        self.now_s = until_s
