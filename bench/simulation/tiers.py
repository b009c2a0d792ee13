"""Rows as the product has them after its migrations, without a database."""

from __future__ import annotations

from datetime import UTC, datetime

from scheduler.models import Model, Tier

# As scheduler/migrations/0002_first_tiers.py and 0004_first_budgets.py make them.
FIRST = {
    "free": {"weight": 1, "concurrency": 2, "max_output_tokens": 512, "budget_tokens": 50_000}
    | {"refill_tokens_per_hour": 25_000, "shed_at_percent": 60},
    "plus": {"weight": 3, "concurrency": 4, "max_output_tokens": 1024, "budget_tokens": 250_000}
    | {"refill_tokens_per_hour": 125_000, "shed_at_percent": 80},
    "pro": {"weight": 8, "concurrency": 8, "max_output_tokens": 2048, "budget_tokens": 1_000_000}
    | {"refill_tokens_per_hour": 500_000, "shed_at_percent": 100},
}
# No tier of these has an override.
NOW = datetime(2033, 5, 18, tzinfo=UTC)


def tiers(*slugs: str, **changes: int) -> list[Tier]:
    """These of the first tiers, with such changes."""
    return [Tier(slug=slug, name=slug.title(), **(FIRST[slug] | changes)) for slug in slugs]


def a_model(**changes: int) -> Model:
    """A model whose window and answers limit nothing beyond the tiers' own caps."""
    return Model(**{"slug": "sim", "context_window": 8192, "max_output_tokens": 8192, **changes})
