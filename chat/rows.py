"""The database for coroutines: acts on rows run in threads, and no connection is held between two of them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, TypeVarTuple

from django.db import InterfaceError, OperationalError, connections

logger = logging.getLogger(__name__)

T = TypeVar("T")
Args = TypeVarTuple("Args")

PAUSE_MIN_S = 0.1
PAUSE_MAX_S = 2.0
# A restart or a failover of the database is ridden out.
PATIENCE_S = 90.0

DatabaseAway = (OperationalError, InterfaceError)


class Rows:
    """Threads of their own, so that nothing else can use up what finishing a run needs."""

    def __init__(self, threads: int, name: str = "rows") -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=name)

    async def act(self, act: Callable[[*Args], T], *args: *Args) -> T:
        """Run `act`, then give its connection back to the pool."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, _act, act, args)

    async def insist(self, act: Callable[[*Args], T], *args: *Args, patience_s: float = PATIENCE_S) -> T:
        """`act`, repeated while the database is away. Raises `DatabaseAway` when that outlasts `patience_s`."""
        give_up_at = time.monotonic() + patience_s
        pause_s = PAUSE_MIN_S
        while True:
            try:
                return await self.act(act, *args)
            except DatabaseAway as error:
                if time.monotonic() + pause_s > give_up_at:
                    raise
                logger.warning("rows.away act=%s error=%s", act.__name__, type(error).__name__)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)

    def close(self) -> None:
        """Take no more work; a thread that is stuck in a socket is not waited for."""
        self._executor.shutdown(wait=False, cancel_futures=True)


def _act(act: Callable[[*Args], T], args: tuple[*Args]) -> T:
    try:
        return act(*args)
    finally:
        connections.close_all()
