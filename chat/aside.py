"""What a worker does beside its runs' own course, when nobody waits for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from chat.models import Run
from chat.rows import Rows

logger = logging.getLogger(__name__)

# How long a worker that stops waits for what it has still to do.
LAST_WORDS_S = 2.0


class Aside:
    """Does things one after the other, in a thread of its own: a server that is slow costs no run its time."""

    def __init__(self, name: str) -> None:
        self._rows = Rows(threads=1, name=name)
        self._under_way: set[asyncio.Task[None]] = set()

    def do(self, act: Callable[[Run], None], run: Run) -> None:
        """Have `act(run)` called soon, behind what came before; nobody waits for it."""
        task = asyncio.create_task(self._robustly(act, run))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _robustly(self, act: Callable[[Run], None], run: Run) -> None:
        try:
            await self._rows.act(act, run)
        except Exception as error:
            # Whatever it was, the run goes on.
            logger.warning("aside.failed what=%s run=%s error=%s", act.__name__, run.pk, type(error).__name__)

    async def finish(self) -> None:
        """Return when all is done, or after a while."""
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=LAST_WORDS_S)

    def close(self) -> None:
        """Do no more."""
        self._rows.close()


@asynccontextmanager
async def aside(name: str) -> AsyncIterator[Aside]:
    """One for as long as the block runs."""
    beside = Aside(name)
    try:
        yield beside
    finally:
        await beside.finish()
        beside.close()
