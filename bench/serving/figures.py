"""What a cell finds: numbers with a name, a unit and a bound."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Bound:
    """What a number may be at most, or must be at least."""

    limit: float
    is_most: bool = True

    def is_met(self, value: float) -> bool:
        """Whether it is within."""
        return value <= self.limit if self.is_most else value >= self.limit

    def __str__(self) -> str:
        return f"{'≤' if self.is_most else '≥'} {self.limit:g}"


def at_least(limit: float) -> Bound:
    """The more the better."""
    return Bound(limit, is_most=False)


@dataclass(frozen=True)
class Figure:
    """One line of the table. `None` where nothing was measured; peers by their names."""

    what: str
    unit: str
    ours: float | None
    bound: Bound | None = None
    peers: Mapping[str, float | None] = field(default_factory=dict)
    parts: float | None = None
    details: Mapping[str, Any] = field(default_factory=dict)  # for the file only

    @property
    def is_met(self) -> bool | None:
        """None where there is no bound, or nothing to hold against it."""
        return None if self.bound is None or self.ours is None else self.bound.is_met(self.ours)


def percentile(values: Sequence[float], percent: float) -> float:
    """By the nearest rank: one of the values, never one between two. Raises `ValueError` for none."""
    if not values:
        raise ValueError("no values")
    ranked = sorted(values)
    return ranked[max(0, -(-len(ranked) * percent // 100) - 1).__trunc__()]


def spread(values: Sequence[float]) -> Mapping[str, float]:
    """A sample in six numbers."""
    if not values:
        return {"n": 0}
    return {
        "n": len(values),
        "mean": statistics.fmean(values),
        **{f"p{percent:g}": percentile(values, percent) for percent in (50, 95, 99)},
        "max": max(values),
    }
