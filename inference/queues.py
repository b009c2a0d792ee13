"""Which queues a worker pulls from, and in which order: its model's, and those that come to be while it runs.

A tier has a queue that all workers share, and one for each worker: what is in there is for that one alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import chain, groupby
from typing import Any

from celery import bootsteps

from inference.host import NotServed, QueueOrder

logger = logging.getLogger(__name__)

# A message's header: the most tokens that its run may come to. Messages of earlier releases have none.
COST = "cost"
READ_S = 2.0
PULL_S = 1.0


# Between a tier's queue and a worker: no slug has it.
STICKS_TO = "@"


def sticky_name(queue: str, worker: str) -> str:
    """The queue of those runs of a tier's that one worker alone is to take."""
    return f"{queue}{STICKS_TO}{worker}"


def tier_queue(name: str) -> str:
    """The tier's own queue, whether the name is its or a sticky one's."""
    return name.partition(STICKS_TO)[0]


class QueueNames:
    """The queues that a worker pulls from. Its host names and weighs the tiers', read again every `READ_S`.

    Read by another thread.
    """

    def __init__(
        self, worker: str, weights: Mapping[str, float], read: Callable[[], Mapping[str, float]], order: QueueOrder
    ) -> None:
        self.order = order
        self._worker = worker
        self._read = read
        self._is_known = True
        self._heed(weights)

    def _heed(self, weights: Mapping[str, float]) -> None:
        self.now = tuple(chain.from_iterable((sticky_name(queue, self._worker), queue) for queue in weights))
        self.order.weigh(weights)

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Read them in a task beside, and in a thread: the host may have to wait for a database."""
        task = asyncio.create_task(self._follow_for_ever(), name="queues")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})

    async def _follow_for_ever(self) -> None:
        while True:
            try:
                self._heed(await asyncio.to_thread(self._read))
                self._is_known = True
            except NotServed as refused:
                self._stay(str(refused))
            except Exception:
                logger.exception("queues.not_read")
            await asyncio.sleep(READ_S)

    def _stay(self, reason: str) -> None:
        """With those that are known, while the model is inactive or the database away; said once."""
        if self._is_known:
            logger.warning("queues.not_read reason=%s", reason)
        self._is_known = False


class FairCycle:
    """What kombu's Redis channel asks, before each pull, in which order to look at its queues; one a channel.

    The order is between tiers; of each the sticky queue comes first, since nobody else takes from that.
    """

    def __init__(self, order: QueueOrder) -> None:
        self._order = order
        self._of_tier: Mapping[str, Sequence[str]] = {}

    def update(self, queues: Iterable[str]) -> None:
        """These the channel pulls from."""
        in_turn = sorted(queues, key=lambda name: (tier_queue(name), STICKS_TO not in name))
        self._of_tier = {tier: tuple(names) for tier, names in groupby(in_turn, key=tier_queue)}

    def consume(self, _count: int) -> list[str]:
        """All of them. Those whose tier is gone come last: nothing new is put there."""
        tiers = dict.fromkeys(self._order.ranked()) | dict.fromkeys(self._of_tier)
        return [name for tier in tiers for name in self._of_tier.get(tier, ())]

    def rotate(self, last_used: str) -> str:
        """A message came from there: the pool charges it, which moves the queue."""
        return last_used


class FairCycles:
    """Makes a cycle for each channel; kombu's `queue_order_strategy`."""

    def __init__(self, order: QueueOrder) -> None:
        self._order = order

    def __call__(self) -> FairCycle:
        """A cycle by the order that all of them share."""
        return FairCycle(self._order)

    def __json__(self) -> str:
        """Its name: `celery inspect stats` tells the transport's options."""
        return type(self).__name__


class PullFromNewQueues(bootsteps.StartStopStep):
    """Celery's consumer pulls from queues as they are named; it never stops, since something may wait in an old one.

    What was added survives a reconnect: the app keeps the names, from which the next consumer is made.
    """

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def register_with_event_loop(self, consumer: Any, hub: Any) -> None:
        """Look every `PULL_S`; called again after each reconnect, which empties the hub."""
        hub.call_repeatedly(PULL_S, self._pull, consumer)

    def _pull(self, consumer: Any) -> None:
        for name in consumer.controller.queue_names.now:
            if not consumer.task_consumer.consuming_from(name):
                consumer.add_task_queue(name)
                logger.info("queues.pulls queue=%s", name)
