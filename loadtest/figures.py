"""What a step comes to: the window of it that counts, and the numbers of what happened there."""

from __future__ import annotations

import bisect
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from loadtest.measuring import Answer

# Refusals that tell of a user's own limits, not of how much the deployment carries.
OWN_LIMITS = ("budget_exhausted", "too_many_runs", "too_many_requests", "too_many_streams")
LEAST_DELTAS = 6  # of an answer within the window, for its speed to be told


@dataclass(frozen=True)
class Window:
    """The part of a step that counts, in seconds of the answers' clock."""

    begin: float
    end: float

    @property
    def seconds(self) -> float:
        """How long it is."""
        return self.end - self.begin

    def holds(self, at: float) -> bool:
        """Whether a moment lies in it."""
        return self.begin <= at < self.end


@dataclass(frozen=True)
class Refusal:
    """Somebody was sent away."""

    at: float
    tier: str
    code: str


@dataclass(frozen=True)
class TierFigures:
    """Of the users of one tier."""

    questions: int
    ttft_p50_s: float | None
    ttft_p95_s: float | None
    speed_p50: float | None


@dataclass(frozen=True)
class StepFigures:
    """A step in numbers: seconds, and tokens/s. `None` where nothing was seen."""

    users: int
    seconds: float
    questions: int
    ttft_p50_s: float | None
    ttft_p95_s: float | None
    speed_p50: float | None
    speed_p10: float | None
    tokens_per_s: float
    refusals: Mapping[str, int]
    failures: Mapping[str, int]
    tiers: Mapping[str, TierFigures] = field(default_factory=dict)
    began_at: float = 0.0  # of the wall clock
    others: float | None = None  # which part of all cores was taken by what is no part of the test

    @property
    def turned_away(self) -> float:
        """Which part of all questions failed, or was refused because the deployment was full."""
        full = sum(count for code, count in self.refusals.items() if code not in OWN_LIMITS)
        asked = self.questions + full
        return (full + sum(self.failures.values())) / asked if asked else 0.0

    def begun_at(self, moment: float) -> StepFigures:
        """The same of a window that began at a moment of the wall clock."""
        return replace(self, began_at=moment)

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> StepFigures:
        """The inverse of `dataclasses.asdict`."""
        tiers = {name: TierFigures(**figures) for name, figures in told.get("tiers", {}).items()}
        return cls(**{**told, "tiers": tiers})


def figures_of(users: int, window: Window, answers: Sequence[Answer], refusals: Iterable[Refusal]) -> StepFigures:
    """What happened within the window, also of answers that began before it or go on behind it."""
    refused = Counter(refusal.code for refusal in refusals if window.holds(refusal.at))
    failed = Counter(
        answer.failure
        for answer in answers
        if answer.failure and answer.ended_at is not None and window.holds(answer.ended_at)
    )
    tokens_a_delta = _tokens_a_delta(answers)
    speeds = _speeds(answers, window, tokens_a_delta)
    ttfts = _ttfts(answers, window)
    return StepFigures(
        users,
        window.seconds,
        _questions(answers, window),
        _percentile(ttfts, 50),
        _percentile(ttfts, 95),
        _percentile(speeds, 50),
        _percentile(speeds, 10),
        sum(_deltas_within(answer, window) for answer in answers) * tokens_a_delta / window.seconds,
        dict(refused),
        dict(failed),
        {tier: _of_tier(answers, tier, window, tokens_a_delta) for tier in sorted({each.tier for each in answers})},
    )


def _of_tier(answers: Sequence[Answer], tier: str, window: Window, tokens_a_delta: float) -> TierFigures:
    own = [answer for answer in answers if answer.tier == tier]
    ttfts = _ttfts(own, window)
    speeds = _speeds(own, window, tokens_a_delta)
    return TierFigures(_questions(own, window), _percentile(ttfts, 50), _percentile(ttfts, 95), _percentile(speeds, 50))


def _questions(answers: Iterable[Answer], window: Window) -> int:
    return sum(window.holds(answer.sent_at) for answer in answers)


def _ttfts(answers: Iterable[Answer], window: Window) -> Sequence[float]:
    """Of questions within the window.

    Who still waits when it ends is counted with what they have waited so far once that is longer than half of those
    who were answered had to: without them a deployment that answers nobody any more would look fast.
    """
    known: list[float] = []
    waiting: list[float] = []
    for answer in answers:
        if not window.holds(answer.sent_at):
            continue
        if answer.first_at is not None and answer.first_at < window.end:
            known.append(answer.first_at - answer.sent_at)
        elif answer.ended_at is None or answer.ended_at >= window.end:
            waiting.append(window.end - answer.sent_at)
    usual = statistics.median(known) if known else 0.0
    return known + [waited for waited in waiting if waited > usual]


def _speeds(answers: Iterable[Answer], window: Window, tokens_a_delta: float) -> Sequence[float]:
    """Tokens/s of each answer, behind its first words, over the part of it that came within the window."""
    found = []
    for answer in answers:
        first, end = _range(answer, window)
        if end - first >= LEAST_DELTAS:
            seconds = answer.delta_at[end - 1] - answer.delta_at[first]
            found.append((end - first - 1) * _ratio(answer, tokens_a_delta) / max(1e-6, seconds))
    return found


def _deltas_within(answer: Answer, window: Window) -> int:
    first, end = _range(answer, window)
    return end - first


def _range(answer: Answer, window: Window) -> tuple[int, int]:
    return bisect.bisect_left(answer.delta_at, window.begin), bisect.bisect_left(answer.delta_at, window.end)


def _ratio(answer: Answer, otherwise: float) -> float:
    """Tokens that each event of an answer brought; not yet known of one that goes on."""
    return answer.tokens / len(answer.delta_at) if answer.tokens and answer.delta_at else otherwise


def _tokens_a_delta(answers: Iterable[Answer]) -> float:
    whole = [answer for answer in answers if answer.tokens and not answer.failure and answer.delta_at]
    deltas = sum(len(answer.delta_at) for answer in whole)
    return sum(answer.tokens or 0 for answer in whole) / deltas if deltas else 1.0


def _percentile(values: Sequence[float], percent: float) -> float | None:
    """On the line between the two nearest ranks: smoother over few values than either."""
    if not values:
        return None
    ranked = sorted(values)
    place = (len(ranked) - 1) * percent / 100
    low = int(place)
    high = min(low + 1, len(ranked) - 1)
    return ranked[low] + (place - low) * (ranked[high] - ranked[low])
