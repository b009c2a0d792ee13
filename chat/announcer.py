"""A worker's announcements, beside its runs' own course."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from chat.models import Run
from chat.rows import Rows

logger = logging.getLogger(__name__)

# How long a worker that stops waits for what it has still to tell.
LAST_WORDS_S = 2.0


class Announcer:
    """Tells pages of runs, one after the other, in a thread of its own: a Redis that is slow costs no run its time."""

    def __init__(self) -> None:
        self._rows = Rows(threads=1, name="announcer")
        self._under_way: set[asyncio.Task[None]] = set()

    def say(self, announce: Callable[[Run], None], run: Run) -> None:
        """Have `announce(run)` called soon, behind what was said before; nobody waits for it."""
        task = asyncio.create_task(self._robustly(announce, run))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _robustly(self, announce: Callable[[Run], None], run: Run) -> None:
        try:
            await self._rows.act(announce, run)
        except Exception as error:
            # A hint less; whatever it was, the run goes on.
            logger.warning("announce.failed what=%s run=%s error=%s", announce.__name__, run.pk, type(error).__name__)

    async def finish(self) -> None:
        """Return when all is said, or after a while."""
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=LAST_WORDS_S)

    def close(self) -> None:
        """Say no more."""
        self._rows.close()


@asynccontextmanager
async def announcing() -> AsyncIterator[Announcer]:
    """An announcer for as long as the block runs."""
    announcer = Announcer()
    try:
        yield announcer
    finally:
        await announcer.finish()
        announcer.close()
