"""A worker: slots, and an order of its own between the tiers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from inference.queues import sticky_name
from inference.turnover import Turnover
from scheduler.fairness import FairOrder
from scheduler.routing import Report


class Worker:
    """Takes runs while it has a free slot, as its order has it."""

    def __init__(self, name: str, slots: int, weights: Mapping[str, float], clock: Callable[[], float]) -> None:
        self.name = name
        self.free_slots = slots
        self.order = FairOrder()
        self.order.weigh(weights)
        self._turnover = Turnover(clock)

    def queues(self) -> list[str]:
        """Those to look at, in order."""
        return [each for queue in self.order.ranked() for each in (sticky_name(queue, self.name), queue)]

    def report(self, prefill_us: float) -> Report:
        """What it tells of itself."""
        return Report(self.name, self.free_slots, self._turnover.interval_ms, prefill_us)

    def take(self, queue: str, cost: int) -> None:
        """A message has come."""
        self.free_slots -= 1
        self._turnover.taken(is_full=not self.free_slots)
        self.order.start(queue, cost)

    def let_go(self, queue: str, cost: int, charge: int) -> None:
        """A run has ended."""
        self._turnover.let_go(was_full=not self.free_slots)
        self.free_slots += 1
        self.order.correct(queue, cost, charge)
