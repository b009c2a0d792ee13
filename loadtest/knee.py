"""Where a deployment stops serving well, from the figures of all steps, and how many users are advised.

Of each measure that has a bound the steps give a value by number of users. What disturbs a step from outside makes it
worse and never better, and more users never help: so the better of two steps of as many users counts, and a step is as
good as any with more users was. The knee is the number of users at which the first of these curves crosses its bound,
on the line between the two steps around it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from loadtest.figures import StepFigures

MOST_TURNED_AWAY = 0.05
NO_WORD_YET_S = 3600.0  # stands for a first word that nobody had


class State(StrEnum):
    """What the steps say of the knee."""

    FOUND = "found"
    ABOVE = "above"  # every step was within the bounds
    BELOW = "below"  # not even the first step was
    UNKNOWN = "unknown"  # there is no step


class Measure(StrEnum):
    """What has a bound."""

    TTFT = "ttft"
    SPEED = "speed"
    TURNED_AWAY = "turned_away"


@dataclass(frozen=True)
class Bounds:
    """Seconds to the first words, for 95 of 100 questions; tokens/s of the median user, at least."""

    ttft_s: float
    speed: float

    def passed(self, step: StepFigures) -> Sequence[Measure]:
        """Those that the step is beyond."""
        return [measure for measure in Measure if _excess(measure, self, step) > 0]


@dataclass(frozen=True)
class Knee:
    """`users` is where the bound of `broke` is crossed; where that was not seen, the most or fewest that were tried."""

    state: State
    users: float = 0.0
    broke: Measure | None = None


@dataclass(frozen=True)
class Advice:
    """How many users to plan with."""

    users: int
    margin: float


def knee_of(steps: Sequence[StepFigures], bounds: Bounds) -> Knee:
    """From steps in any order; those without a question say nothing."""
    told = sorted((step for step in steps if step.questions or step.refusals), key=lambda step: step.users)
    if not told:
        return Knee(State.UNKNOWN)
    crossings = [(users, measure) for measure in Measure if (users := _crossing(measure, bounds, told)) is not None]
    if not crossings:
        return Knee(State.ABOVE, told[-1].users)
    users, broke = min(crossings, key=lambda crossing: crossing[0])
    return Knee(State.BELOW if users <= told[0].users else State.FOUND, users, broke)


def advice_of(knee: Knee, margin: float) -> Advice | None:
    """The knee without a margin; what was seen to work where it lies further on; nothing where it is not known."""
    if knee.state in (State.BELOW, State.UNKNOWN):
        return None
    return Advice(math.floor(knee.users * (1 - margin) + 1e-9), margin)


def _crossing(measure: Measure, bounds: Bounds, steps: Sequence[StepFigures]) -> float | None:
    """The users at which the curve of a measure crosses its bound; None where it never does."""
    curve = undisturbed([(step.users, _excess(measure, bounds, step)) for step in steps])
    if curve[0][1] > 0:
        return float(curve[0][0])
    for (left, before), (right, behind) in pairwise(curve):
        if behind > 0:
            return left + (right - left) * (-before / (behind - before))
    return None


def _excess(measure: Measure, bounds: Bounds, step: StepFigures) -> float:
    """How far a step is beyond a bound; below zero within it.

    On scales on which it grows about evenly with the users: the logarithm of the wait, the time of a token.
    """
    if measure is Measure.TTFT:
        ttft_s = NO_WORD_YET_S if step.ttft_p95_s is None else step.ttft_p95_s
        return math.log(max(1e-3, ttft_s) / bounds.ttft_s) if step.questions else -1.0
    if measure is Measure.SPEED:
        return -1.0 if step.speed_p50 is None else bounds.speed / max(1e-6, step.speed_p50) - 1
    return step.turned_away - MOST_TURNED_AWAY


def undisturbed(values: Sequence[tuple[int, float]]) -> Sequence[tuple[int, float]]:
    """By growing numbers of users, one value for each: the lowest that was seen with as many or more."""
    best: dict[int, float] = {}
    lowest = math.inf
    for users, value in sorted(values, reverse=True):
        lowest = min(lowest, value)
        best[users] = lowest
    return sorted(best.items())
