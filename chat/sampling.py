"""How the tokens of a run are chosen: as its model's row says, and as the program wishes that asked."""

from __future__ import annotations

from decimal import Decimal

from chat.models import Run
from chat.wishes import Wishes
from inference.engine import Sampling

# An engine takes no 0, which means the same: the likeliest token alone.
LEAST_TOP_P = 1e-6


def sampling_of(run: Run) -> Sampling:
    """As the engine takes it."""
    model, wishes = run.model, Wishes.of(run)
    return Sampling(
        temperature=_wished(wishes.temperature, model.temperature),
        top_p=max(LEAST_TOP_P, _wished(wishes.top_p, model.top_p)),
        presence_penalty=wishes.presence_penalty or 0.0,
        frequency_penalty=wishes.frequency_penalty or 0.0,
        seed=wishes.seed,
    )


def _wished(wish: float | None, setting: Decimal) -> float:
    return float(setting) if wish is None else wish
