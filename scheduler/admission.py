"""What must hold before a run may wait."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from scheduler.errors import PromptExceedsBudget
from scheduler.limits import Limits
from scheduler.models import Model, Tier

# So near to the bound requests count one after the other. Further off they need not: more are hardly between their
# count and their commit at once, since Postgres has fewer connections by default.
CROWD = 100


# About so much of a model's queue is kept for its tiers, for each by its weight and one place at least: a tier none of
# whose runs may wait has no share.
KEPT_PERCENT = 25
# Of a model's window, for which the turns before make room: an answer that may be longer has what they leave.
ANSWER_PERCENT = 25


@dataclass(frozen=True, slots=True)
class Waiting:
    """A model's runs that no worker has taken, by tier, and the weights of the tiers that may use it."""

    runs: Mapping[str, int]
    weights: Mapping[str, int]

    def places(self, model: Model, tier: Tier) -> int:
        """How many more of the tier may wait."""
        return min(self.places_in_tier(tier), self.places_at_model(model, tier))

    def places_in_tier(self, tier: Tier) -> int:
        """As many as the tier's own depth leaves."""
        return tier.queue_depth - self.of_tier(tier.pk)

    def places_at_model(self, model: Model, tier: Tier) -> int:
        """As many as all tiers together leave: the lower the tier's shed percentage, the earlier there are none.

        Beyond its percentage the tier has the places kept for it, and it never has those kept for others. Where there
        are none, so many are to leave first, less one. Weakness: what is kept for a tier that does not come stays
        empty. The depth is never passed, though weights or depths change.
        """
        depth, taken = model.queue_depth, self.of_model
        others = sum(self._free_kept(model, slug) for slug in self.weights if slug != tier.pk)
        shared = min(max(1, depth * tier.shed_at_percent // 100), depth - others) - taken
        own = self._free_kept(model, tier.pk)
        return min(depth - taken, max(shared, own) if own else shared)

    def kept(self, model: Model, slug: str) -> int:
        """The places that a tier has of its own; none when it may not use the model."""
        if slug not in self.weights:
            return 0
        return max(1, model.queue_depth * KEPT_PERCENT * self.weights[slug] // (100 * sum(self.weights.values())))

    def of_tier(self, slug: str) -> int:
        """How many runs of it wait."""
        return self.runs.get(slug, 0)

    @property
    def of_model(self) -> int:
        """How many runs of all tiers wait."""
        return sum(self.runs.values())

    def _free_kept(self, model: Model, slug: str) -> int:
        return max(0, self.kept(model, slug) - self.of_tier(slug))


def longest_answer(model: Model, limits: Limits, wanted_tokens: int | None) -> int:
    """What a long chat's prompt is to leave of the window: the longest answer, or of a very long one a part."""
    most = min(limits.max_output_tokens, model.max_output_tokens, wanted_tokens or model.max_output_tokens)
    return room_for_answer(model, most)


def room_for_answer(model: Model, max_output_tokens: int) -> int:
    """For which what was said before gives way: of the window a part at most."""
    return min(max_output_tokens, max(1, model.context_window * ANSWER_PERCENT // 100))


def output_cap(model: Model, limits: Limits, input_tokens: int, wanted_tokens: int | None) -> int:
    """The longest answer that a prompt which fits the model's window can have: what conflicting limits all allow.

    Raises `PromptExceedsBudget`.
    """
    left = min(model.context_window, limits.budget_tokens) - input_tokens
    if left < 1:
        raise PromptExceedsBudget(input_tokens, limits.budget_tokens)
    return min(left, limits.max_output_tokens, model.max_output_tokens, wanted_tokens or left)
