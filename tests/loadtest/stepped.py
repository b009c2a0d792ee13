"""Steps with given figures."""

from __future__ import annotations

from collections.abc import Mapping

from loadtest.figures import StepFigures


def step(
    users: int,
    ttft_s: float | None = 0.5,
    speed: float | None = 20.0,
    *,
    questions: int = 40,
    refusals: Mapping[str, int] | None = None,
    failures: Mapping[str, int] | None = None,
) -> StepFigures:
    """A step of so many users, whose p50 are half of what is bounded."""
    half = None if ttft_s is None else ttft_s / 2
    return StepFigures(
        users, 20.0, questions, half, ttft_s, speed, speed, 100.0, dict(refusals or {}), dict(failures or {})
    )
