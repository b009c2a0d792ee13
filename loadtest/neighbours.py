"""How much of the machine's cores what is no part of a test took meanwhile."""

from __future__ import annotations

import asyncio
import bisect
import contextlib
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import psutil

from bench.serving.meter import cpu_s

EVERY_S = 1.5


@dataclass
class Neighbours:
    """CPU seconds that this process, and all that it has started, did not take, at some moments."""

    at: list[float] = field(default_factory=list)
    others_s: list[float] = field(default_factory=list)

    def note(self) -> None:
        """One more moment."""
        self.at.append(time.time())
        self.others_s.append(_busy_s() - cpu_s(os.getpid()))

    def share(self, begin: float, end: float) -> float | None:
        """Which part of all cores others had between two moments; None where too little is known."""
        first, last = bisect.bisect_left(self.at, begin), bisect.bisect_right(self.at, end) - 1
        if last <= first:
            return None
        seconds = (self.at[last] - self.at[first]) * (os.cpu_count() or 1)
        return min(1.0, max(0.0, (self.others_s[last] - self.others_s[first]) / seconds))


@asynccontextmanager
async def watched() -> AsyncIterator[Neighbours]:
    """Note them until the block ends."""
    neighbours = Neighbours()
    noting = asyncio.create_task(_note_for_ever(neighbours))
    try:
        yield neighbours
    finally:
        noting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await noting


async def _note_for_ever(neighbours: Neighbours) -> None:
    while True:
        neighbours.note()
        await asyncio.sleep(EVERY_S)


def _busy_s() -> float:
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - times.iowait - times.guest - times.guest_nice)
