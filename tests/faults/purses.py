"""What the users of a soak may do: tiers, budgets of all sizes, and queues that are full now and then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle

from tests.faults.world import World


@dataclass(frozen=True, slots=True)
class Allowance:
    """One user's."""

    tier: str
    budget_tokens: int
    refill_tokens_per_hour: int


# Less than a token is refilled in a soak: what is left says to the token what was charged.
PLENTY, A_FEW, SLOWLY = 1_000_000, 2_500, 1
# One question's worth, twice in a minute or so; a chat that goes on does not fit for long.
ONE, FAST = 700, 120_000
ALLOWANCES = (
    Allowance("free", PLENTY, SLOWLY),
    Allowance("plus", PLENTY, SLOWLY),
    Allowance("pro", PLENTY, SLOWLY),
    Allowance("free", ONE, FAST),
    Allowance("pro", PLENTY, SLOWLY),
    Allowance("plus", A_FEW, SLOWLY),
    Allowance("pro", PLENTY, FAST),
)
# By tier: the deadline, in seconds, that passes when both workers are away for a while, and from how many percent of a
# model's queue on it is refused.
QUEUES = {"free": (5, 60), "plus": (8, 80), "pro": (15, 100)}
ALLOT = """
    WITH owner AS (
        UPDATE chat_user SET tier_id = %(tier)s
         WHERE id = (SELECT user_id FROM chat_apikey WHERE digest = encode(sha256(%(key)s::bytea), 'hex')) RETURNING id
    )
    INSERT INTO scheduler_override (user_id, until, budget_tokens, refill_tokens_per_hour, reason)
    SELECT id, now() + interval '1 day', %(budget)s, %(refill)s, '' FROM owner
"""
BOUND = "UPDATE scheduler_tier SET queue_deadline_s = %s, shed_at_percent = %s WHERE slug = %s"


def allot(world: World, keys: Sequence[str]) -> None:
    """Give the users their tiers and budgets, and the queues bounds that so many users meet."""
    with world.database() as connection:
        for key, allowance in zip(keys, cycle(ALLOWANCES), strict=False):
            numbers = {"budget": allowance.budget_tokens, "refill": allowance.refill_tokens_per_hour}
            connection.execute(ALLOT, {"key": key, "tier": allowance.tier, **numbers})
        connection.execute("UPDATE scheduler_model SET queue_depth = %s", [max(3, len(keys) // 2)])
        for tier, bounds in QUEUES.items():
            connection.execute(BOUND, [*bounds, tier])
