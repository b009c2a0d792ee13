"""What one user may do now: the tier's numbers, or the user's own while they are in force."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Self

from scheduler.models import Override, Tier


@dataclass(frozen=True, slots=True)
class Limits:
    """Tokens that a full budget holds and gains in an hour, live runs, and tokens of the longest answer.

    `refill_since` is when the refill became what it is, where that is known: at the end of an override.
    """

    budget_tokens: int
    refill_tokens_per_hour: int
    concurrency: int
    max_output_tokens: int
    refill_since: datetime | None = None

    @classmethod
    def of(cls, tier: Tier, override: Override | None, now: datetime) -> Self:
        """The tier's, with what an override in force sets in their place."""
        limits = cls(**{name: getattr(tier, name) for name in NAMES})
        if override is None:
            return limits
        if not override.is_in_force(now):
            return replace(limits, refill_since=override.until)
        own = {name: getattr(override, name) for name in NAMES}
        return replace(limits, **{name: number for name, number in own.items() if number is not None})


NAMES = ("budget_tokens", "refill_tokens_per_hour", "concurrency", "max_output_tokens")
