"""What is read off runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def percentile(values: Sequence[float], percent: float) -> float:
    """The value that so many percent do not exceed; nan of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))] if ordered else float("nan")


def shares(amounts: Mapping[str, float]) -> dict[str, float]:
    """Each one's part of the whole."""
    whole = sum(amounts.values())
    return {name: amount / whole for name, amount in amounts.items()}


def filled(demands: Mapping[str, float], weights: Mapping[str, int], capacity: float) -> dict[str, float]:
    """What weighted max-min fairness gives: nobody more than they ask for, and what these leave to others by weight."""
    given: dict[str, float] = {}
    while len(given) < len(demands):
        level = (capacity - sum(given.values())) / sum(weights[name] for name in demands if name not in given)
        content = {name: d for name, d in demands.items() if name not in given and d <= level * weights[name]}
        if not content:
            return given | {name: level * weights[name] for name in demands if name not in given}
        given |= content
    return given
