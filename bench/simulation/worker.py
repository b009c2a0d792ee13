"""A worker: slots, and an order of its own between the tiers."""

from __future__ import annotations

from collections.abc import Mapping

from scheduler.fairness import FairOrder


class Worker:
    """Takes runs while it has a free slot, as its order has it."""

    def __init__(self, slots: int, weights: Mapping[str, int]) -> None:
        self.free_slots = slots
        self.order = FairOrder()
        self.order.weigh(weights)

    def take(self, queue: str, cost: int) -> None:
        """A message has come."""
        self.free_slots -= 1
        self.order.start(queue, cost)

    def let_go(self, queue: str, cost: int, charge: int) -> None:
        """A run has ended."""
        self.free_slots += 1
        self.order.correct(queue, cost, charge)
