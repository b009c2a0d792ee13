"""Lets the next runs out of their rooms while others are under way."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVarTuple

from django.db import DatabaseError
from kombu.exceptions import KombuError
from redis.exceptions import RedisError

from chat import queueing
from chat.models import Run, Status
from chat.rows import Rows
from inference.host import QueueOrder
from scheduler.room import Correction, queue_name

logger = logging.getLogger(__name__)

Args = TypeVarTuple("Args")


@dataclass(slots=True)
class Wish:
    """A release that is wanted, and what it is to tell: how many runs were claimed, what others came to."""

    claimed: int = 0
    corrections: list[Correction] = field(default_factory=list, repr=False)


class Releases:
    """Asks for releases beside the runs' own course: a broker that is away must not cost a run its time.

    A release fills the queue up to its depth, so that any number of wishes for one queue are one. It also tells how
    many runs have left that queue for this worker meanwhile, by which the drain is measured, and what ended runs came
    to, by which their users' next are placed; and it hears where nothing waits, for the order between the queues. What
    falls into an outage of the broker is forgotten: the drain looks slower, and users' counters higher, for a while.
    """

    def __init__(self, order: QueueOrder) -> None:
        self._order = order
        self._rows = Rows(threads=1, name="releases")
        self._wanted = defaultdict[tuple[str, str], Wish](Wish)  # by model and tier
        self._all_wanted = False
        self._called = asyncio.Event()

    def claimed(self, run: Run) -> None:
        """`run` has left its queue: there is room for one more in there."""
        self._wanted[run.model_id, run.room_tier].claimed += 1
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
                # The oldest: in a busy tier wishes come faster than a slow broker grants them.
                model, tier = next(iter(self._wanted))
                await self._robustly(self.release, model, tier, self._wanted.pop((model, tier)))

    def release(self, model: str, tier: str, wish: Wish) -> None:
        """Do and tell as wished, and hear where nothing waits. In a thread."""
        sent = queueing.release(model, tier, wish.claimed, wish.corrections)
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
