"""Lets the next runs out of their rooms while others are under way."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVarTuple

from django.db import DatabaseError
from kombu.exceptions import KombuError
from redis.exceptions import RedisError

from chat import queueing
from chat.models import Run
from chat.rows import Rows

logger = logging.getLogger(__name__)

Args = TypeVarTuple("Args")


class Releases:
    """Asks for releases beside the runs' own course: a broker that is away must not cost a run its time.

    A release fills the queue up to its depth, so that any number of wishes for one queue are one. It also tells how
    many runs have left that queue for this worker meanwhile, by which the drain is measured; those of an outage of the
    broker are forgotten, and the drain looks slower for a while.
    """

    def __init__(self) -> None:
        self._rows = Rows(threads=1, name="releases")
        self._wanted = Counter[tuple[str, str]]()  # by model and tier: how many were claimed and not told of
        self._all_wanted = False
        self._called = asyncio.Event()

    def claimed(self, run: Run) -> None:
        """`run` has left its queue: there is room for one more in there."""
        self._wanted[run.model_id, run.tier_id] += 1
        self._called.set()

    def ended(self, run: Run) -> None:
        """There may be room for one more after `run`: whoever should have released it may be dead."""
        self._wanted[run.model_id, run.tier_id] += 0
        self._called.set()

    def want_all(self) -> None:
        """There may be room for one more, of whatever kind: a message led to no run."""
        self._all_wanted = True
        self._called.set()

    @asynccontextmanager
    async def releasing(self) -> AsyncIterator[None]:
        """Release what is wanted, in a task beside."""
        task = asyncio.create_task(self._release_for_ever(), name="releases")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})
            self._rows.close()

    async def _release_for_ever(self) -> None:
        while True:
            await self._called.wait()
            self._called.clear()
            if self._all_wanted:
                self._all_wanted = False
                await self._robustly(queueing.release_all)
            while self._wanted:
                (model, tier), departed = self._wanted.popitem()
                await self._robustly(queueing.release, model, tier, departed)

    async def _robustly(self, act: Callable[[*Args], object], *args: *Args) -> None:
        try:
            await self._rows.act(act, *args)
        except (KombuError, RedisError, DatabaseError, OSError) as error:
            # The rows say that they wait, whatever the broker knows.
            logger.warning("%s.failed of=%s error=%s", act.__name__, args, type(error).__name__)
        except Exception:
            logger.exception("%s.failed of=%s", act.__name__, args)
