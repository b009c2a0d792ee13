"""Lets the next runs out of their rooms while others are under way."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVarTuple

from django.db import DatabaseError
from kombu.exceptions import KombuError
from redis.exceptions import RedisError

from chat import services
from chat.models import Run
from chat.rows import Rows

logger = logging.getLogger(__name__)

Args = TypeVarTuple("Args")


class Releases:
    """Asks for releases beside the runs' own course: a broker that is away must not cost a run its time.

    A release fills the queue up to its depth, so that any number of wishes for one queue are one.
    """

    def __init__(self) -> None:
        self._rows = Rows(threads=1, name="releases")
        self._wanted: set[tuple[str, str]] = set()
        self._called = asyncio.Event()

    def want(self, run: Run) -> None:
        """There is room for one more beside or after `run`."""
        self._wanted.add((run.model_id, run.tier_id))
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
        await self._robustly(services.readmit)
        while True:
            await self._called.wait()
            self._called.clear()
            while self._wanted:
                await self._robustly(services.release, *self._wanted.pop())

    async def _robustly(self, act: Callable[[*Args], object], *args: *Args) -> None:
        try:
            await self._rows.act(act, *args)
        except (KombuError, RedisError, DatabaseError, OSError) as error:
            # The rows say that they wait, whatever the broker knows.
            logger.warning("%s.failed of=%s error=%s", act.__name__, args, type(error).__name__)
        except Exception:
            logger.exception("%s.failed of=%s", act.__name__, args)
