"""Lets the next runs out of their rooms while others are under way."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TypeVarTuple
from uuid import UUID

from django.db import DatabaseError
from kombu.exceptions import KombuError
from redis.exceptions import RedisError

from chat import queueing
from chat.models import Run, Status
from chat.rows import Rows
from inference.host import QueueOrder
from scheduler.room import Correction, queue_name
from scheduler.routing import Report

logger = logging.getLogger(__name__)

Args = TypeVarTuple("Args")

# A worker that has not told of itself for several of these is silent.
TELL_S = 2.0
# Sooner, where another number of slots is free: by that runs are kept for it.
LOOK_S = 0.25
LEAVE_S = 1.0


@dataclass(slots=True)
class Wish:
    """A release that is wanted, and what it is to tell: which runs were claimed, what others came to."""

    claimed: list[UUID] = field(default_factory=list, repr=False)
    corrections: list[Correction] = field(default_factory=list, repr=False)


class Releases:
    """Asks for releases beside the runs' own course: a broker that is away must not cost a run its time.

    A release fills the queue up to its depth, so that any number of wishes for one queue are one. It also tells which
    runs have left that queue for this worker meanwhile, by which the drain is measured, and what ended runs came to, by
    which their users' next are placed; and it hears where nothing waits, for the order between the queues. What falls
    into an outage of the broker is forgotten: the drain looks slower, and users' counters higher, for a while.

    Each tells how the worker does, too, by which runs are kept for it; and where none does for a while, that is told
    alone. Its model it learns from its first run: until then nobody's prefix is warm here.
    """

    def __init__(self, order: QueueOrder) -> None:
        self._order = order
        self._rows = Rows(threads=1, name="releases")
        self._wanted = defaultdict[tuple[str, str], Wish](Wish)  # by model and tier
        self._all_wanted = False
        self._called = asyncio.Event()
        self._report: Callable[[], Report | None] = lambda: None
        self._model: str | None = None
        self._told: Report | None = None
        self._told_at = 0.0

    def tell_of(self, report: Callable[[], Report]) -> None:
        """How the worker does, from now on; called on the event loop."""
        self._report = report

    def claimed(self, run: Run) -> None:
        """`run` has left its queue: there is room for one more in there."""
        self._model = run.model_id
        self._wanted[run.model_id, run.room_tier].claimed.append(run.pk)
        self._called.set()

    def ended(self, run: Run) -> None:
        """There may be room for one more after `run`: whoever should have released it may be dead."""
        wish = self._wanted[run.model_id, run.room_tier]
        if Status(run.status).is_terminal:
            wish.corrections.append(queueing.correction(run))
        self._called.set()

    def want_all(self) -> None:
        """There may be room for one more, of whatever kind: a message led to no run."""
        self._all_wanted = True
        self._called.set()

    @asynccontextmanager
    async def releasing(self) -> AsyncIterator[None]:
        """Release what is wanted, in a task beside."""
        tasks = {
            asyncio.create_task(self._release_for_ever(), name="releases"),
            asyncio.create_task(self._tell_for_ever(), name="tells"),
        }
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await self.leave()
            self._rows.close()

    async def _release_for_ever(self) -> None:
        while True:
            await self._called.wait()
            self._called.clear()
            if self._all_wanted:
                self._all_wanted = False
                await self._robustly(queueing.release_all)
            while self._wanted:
                # The oldest: in a busy tier wishes come faster than a slow broker grants them.
                model, tier = next(iter(self._wanted))
                wish = self._wanted.pop((model, tier))
                await self._robustly(self.release, model, tier, wish, self._next_report())

    async def _tell_for_ever(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            if self._model and self._is_news() and (report := self._next_report()):
                await self._robustly(queueing.tell, self._model, report)

    def _is_news(self) -> bool:
        report, told = self._report(), self._told
        is_due = time.monotonic() >= self._told_at + TELL_S
        return report is not None and (is_due or told is None or told.free != report.free)

    def _next_report(self) -> Report | None:
        self._told, self._told_at = self._report(), time.monotonic()
        return self._told

    async def leave(self) -> None:
        """Nothing is to be kept for this worker any more, and what is shall go to others; safe to repeat."""
        self._report, told = (lambda: None), self._told
        self._told = None
        # Else the reaper finds out: nobody waits for a broker that is away.
        with suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_S):
                if self._model and told:
                    await self._robustly(queueing.leave, self._model, told.worker)

    def release(self, model: str, tier: str, wish: Wish, report: Report | None) -> None:
        """Do and tell as wished, and hear where nothing waits. In a thread."""
        sent = queueing.release(model, tier, wish.claimed, wish.corrections, report)
        waiting = {queue_name(model, each) for each, count in sent.waiting.items() if count}
        # Of a tier that never had a run nothing is told.
        self._order.rest(name for name in self._order.ranked() if name not in waiting)

    async def _robustly(self, act: Callable[[*Args], object], *args: *Args) -> None:
        try:
            await self._rows.act(act, *args)
        except (KombuError, RedisError, DatabaseError, OSError) as error:
            # The rows say that they wait, whatever the broker knows.
            logger.warning("%s.failed of=%s error=%s", act.__name__, args, type(error).__name__)
        except Exception:
            logger.exception("%s.failed of=%s", act.__name__, args)
