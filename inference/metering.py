"""What a worker counts of its runs, by tier, since its start: a few additions a token, and no Redis."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

# Upper bounds of the buckets, in seconds. A change makes old and new workers' histograms unlike: give it a new name.
BOUNDS_S: Final[Mapping[str, Sequence[float]]] = {
    "ttft": (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 20, 30, 60, 120, 300),
    "queue_wait": (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600),
    "inter_token": (0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2.5),
}


class Histogram:
    """How many observations fell into each bucket; the last bucket has no upper bound."""

    def __init__(self, bounds_s: Sequence[float]) -> None:
        self._bounds_s = bounds_s
        self.counts = [0] * (len(bounds_s) + 1)
        self.sum_s = 0.0

    def observe(self, seconds: float, times: int = 1) -> None:
        """Count it into the first bucket whose bound it does not exceed."""
        self.counts[bisect_left(self._bounds_s, seconds)] += times
        self.sum_s += seconds * times


@dataclass(eq=False, slots=True)
class Tally:
    """The runs of one tier: `in_hand` now, all else since the start.

    Tokens are counted as the engine takes and gives them, by attempt; `cached_tokens` are among `input_tokens`, and
    `charged_tokens` are what all these cost by the price of cached ones. `miscounted` are prompts of which the engine
    counted other tokens than the host.
    """

    in_hand: int = 0
    taken: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    charged_tokens: int = 0
    miscounted: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    ttft: Histogram = field(default_factory=lambda: Histogram(BOUNDS_S["ttft"]))
    queue_wait: Histogram = field(default_factory=lambda: Histogram(BOUNDS_S["queue_wait"]))
    inter_token: Histogram = field(default_factory=lambda: Histogram(BOUNDS_S["inter_token"]))


class Meter:
    """The tallies of one worker, by tier. Lives on the engine's event loop."""

    def __init__(self) -> None:
        self.tallies: defaultdict[str, Tally] = defaultdict(Tally)
