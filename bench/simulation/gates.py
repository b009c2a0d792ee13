"""Who may wait and who is refused, by the product's own gates; what it counts in rows is counted here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from uuid import UUID

from bench.simulation.runs import Run
from scheduler.admission import Waiting
from scheduler.budgets import Reservation, TokenBuckets
from scheduler.errors import BudgetExhausted
from scheduler.limits import Limits
from scheduler.models import Model, Tier


class Refused(Exception):
    """The run may not wait; the text says for want of what."""


class Gates:
    """What stands before one model's rooms."""

    def __init__(
        self, model: Model, tiers: Mapping[str, Tier], limits: Mapping[str, Limits], buckets: TokenBuckets
    ) -> None:
        self._model, self._tiers, self._limits, self._buckets = model, tiers, limits, buckets
        self._weights = {slug: tier.weight for slug, tier in tiers.items()}
        self._live = Counter[UUID]()  # by user
        self._waiting = Counter[str]()  # by tier

    def enter(self, run: Run) -> None:
        """Count and reserve, or raise `Refused`."""
        tier, user_id = run.tier, run.prompt.person.id
        if self._live[user_id] >= self._limits[tier].concurrency:
            raise Refused("concurrency")
        if Waiting(self._waiting, self._weights).places(self._model, self._tiers[tier]) < 1:
            raise Refused("queue")
        try:
            self._buckets.reserve(Reservation(user_id, run.id), run.cost, self._limits[tier])
        except BudgetExhausted as refused:
            raise Refused("budget") from refused
        self._live[user_id] += 1
        self._waiting[tier] += 1

    def started(self, run: Run) -> None:
        """It does not wait any more."""
        self._waiting[run.tier] -= 1

    def ended(self, run: Run) -> None:
        """Settle it."""
        self._live[run.prompt.person.id] -= 1
        self._buckets.settle(Reservation(run.prompt.person.id, run.id), run.charge)
