"""How soon a full worker has a free slot again."""

from __future__ import annotations

import time
from collections.abc import Callable

from inference.means import Ratio

# A full worker's free slot is taken at once. One that stood empty for so long was waiting for runs.
REFILL_S = 1.0


class Turnover:
    """The mean time from one slot's release to the next, as long as all slots are taken again at once.

    Call it for each run that begins or ends, and say whether no slot is free then, its own being taken still. Slots
    that come free at one engine step share the time since the step before.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._mean = Ratio()
        self._since = clock()
        self._full_at = float("-inf")

    @property
    def interval_ms(self) -> float:
        """The mean of late; 0 as long as the worker was never full."""
        return 1000 * self._mean.value

    def taken(self, is_full: bool) -> None:
        """A run has come."""
        if is_full:
            now = self._clock()
            if now - max(self._since, self._full_at) > REFILL_S:
                self._since = now
            self._full_at = now

    def let_go(self, was_full: bool) -> None:
        """A run's slot is free."""
        now = self._clock()
        if was_full:
            self._full_at = now
        if now - self._full_at <= REFILL_S:
            self._mean.add(now - self._since, 1)
        self._since = now
