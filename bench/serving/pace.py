"""How evenly a stream's tokens come: how late each is, and how far apart its events are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from bench.serving.job import Sample


@dataclass(frozen=True)
class Window:
    """From when the last of all streams had begun until the first one ended."""

    begin: float
    end: float

    @property
    def seconds(self) -> float:
        """How long that is."""
        return max(0.0, self.end - self.begin)

    def holds(self, at: float) -> bool:
        """Whether a moment is within."""
        return self.begin <= at <= self.end


def common_window(samples: Sequence[Sample]) -> Window:
    """Of streams that all have deltas."""
    return Window(max(sample.first_at for sample in samples), min(sample.deltas[-1][0] for sample in samples))


def lags_ms(sample: Sample, tokens_per_s: float, window: Window) -> Sequence[float]:
    """How late the oldest token of each event in the window was.

    The engine makes tokens at fixed times. A stream's event that was fastest, by its newest token, says when these are.
    """
    base = min(at - (behind - 1) / tokens_per_s for at, _, behind in sample.deltas)
    return [1000 * (at - before / tokens_per_s - base) for at, before, _ in sample.deltas if window.holds(at)]


def gaps_ms(sample: Sample, window: Window) -> Sequence[float]:
    """Between the events in the window."""
    times = [at for at, _, _ in sample.deltas if window.holds(at)]
    return [1000 * (later - sooner) for sooner, later in pairwise(times)]


def tokens(sample: Sample, window: Window) -> int:
    """How many came in the window."""
    return sum(behind - before for at, before, behind in sample.deltas if window.holds(at))
