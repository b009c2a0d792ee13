"""How a model's row says that tokens are chosen."""

from __future__ import annotations

from inference.engine import Sampling
from scheduler.models import Model


def sampling_of(model: Model) -> Sampling:
    """As the engine takes it."""
    return Sampling(temperature=float(model.temperature), top_p=float(model.top_p))
