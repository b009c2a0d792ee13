"""What must hold before a run may wait."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.errors import PromptExceedsBudget
from scheduler.limits import Limits
from scheduler.models import Model, Tier

# So near to the bound requests count one after the other. Further off they need not: more are hardly between their
# count and their commit at once, since Postgres has fewer connections by default.
CROWD = 100


@dataclass(frozen=True, slots=True)
class Waiting:
    """Runs that no worker has taken: of one model and tier, and of the model's tiers together."""

    of_tier: int
    of_model: int

    def places(self, model: Model, tier: Tier) -> int:
        """How many more of the tier may wait."""
        return min(self.places_in_tier(tier), self.places_at_model(model, tier))

    def places_in_tier(self, tier: Tier) -> int:
        """As many as the tier's own depth leaves."""
        return tier.queue_depth - self.of_tier

    def places_at_model(self, model: Model, tier: Tier) -> int:
        """As many as all tiers together leave: the lower the tier's shed percentage, the earlier there are none."""
        return max(1, model.queue_depth * tier.shed_at_percent // 100) - self.of_model


def output_cap(model: Model, limits: Limits, input_tokens: int, wanted_tokens: int | None) -> int:
    """The longest answer that a prompt which fits the model's window can have: what conflicting limits all allow.

    Raises `PromptExceedsBudget`.
    """
    left = min(model.context_window, limits.budget_tokens) - input_tokens
    if left < 1:
        raise PromptExceedsBudget(input_tokens, limits.budget_tokens)
    return min(left, limits.max_output_tokens, model.max_output_tokens, wanted_tokens or left)
