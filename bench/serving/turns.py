"""Turns that servers took at real vLLM, and what they come to beside those of the bare engine."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from bench.serving.figures import Bound, Figure, at_least
from bench.serving.meter import Noise

OURS, BARE = "ours", "the parts alone"


@dataclass(frozen=True)
class Load:
    """So many requests at once, each answered with so many tokens."""

    at_once: int
    tokens: int

    def __str__(self) -> str:
        return f"{self.at_once} at once"


JUDGED = Load(16, 128)
SHORT = Load(16, 16)  # beside the judged one: what a request costs, and what each further token of it
LOADS = (Load(1, 64), Load(8, 64), JUDGED, SHORT, Load(32, 64))


@dataclass(frozen=True)
class Turn:
    """One server's turn: what came, and what CPU it took, EngineCore apart."""

    tokens: int
    seconds: float
    ttft_ms: float  # in the median
    engine_s: float
    outside_s: Mapping[str, float]  # by process
    noise: Noise

    @property
    def per_s(self) -> float:
        """Tokens in a second."""
        return self.tokens / self.seconds

    @property
    def per_cpu_s(self) -> float:
        """Tokens for a second of the core: what others on the machine take does not count."""
        return self.tokens / (self.engine_s + sum(self.outside_s.values()))

    @property
    def outside_percent(self) -> float:
        """CPU outside of EngineCore, to that of EngineCore."""
        return 100 * sum(self.outside_s.values()) / self.engine_s


Turns = Mapping[str, Mapping[Load, Sequence[Turn]]]  # by server
Value = Callable[[Turn], float]


def figures(turns: Turns, told: Mapping[str, object], pairs: int) -> Sequence[Figure]:
    """Medians of all turns; `told` is how the engine is set up."""
    taken = {name: {f"{load}, {load.tokens} tokens": by[load] for load in by} for name, by in turns.items()}
    lines = [line for load in LOADS if load is not SHORT for line in _of(turns, load, pairs)]
    return [Figure("pairs of turns at real vLLM", "", pairs, details={"engine": told, **taken}), *lines, *_costs(turns)]


def _of(turns: Turns, load: Load, pairs: int) -> Sequence[Figure]:
    rate_bound, cpu_bound = (at_least(0.97), Bound(3)) if load is JUDGED else (None, None)
    medians = partial(_medians, turns, load)
    over_bare = f"over bare AsyncLLM's, median of {pairs} pairs, {load}"
    return [
        _line(f"real vLLM: tokens/s, {load}", "1/s", medians(lambda turn: turn.per_s)),
        _line(f"tokens/s {over_bare}", "×", _ratios(turns, load, lambda turn: turn.per_s), rate_bound),
        _line(f"tokens a CPU second {over_bare}", "×", _ratios(turns, load, lambda turn: turn.per_cpu_s)),
        _line(f"CPU outside EngineCore to its own, {load}", "%", medians(lambda turn: turn.outside_percent), cpu_bound),
        _line(f"real vLLM: TTFT p50, {load}", "ms", medians(lambda turn: turn.ttft_ms)),
    ]


def _costs(turns: Turns) -> Sequence[Figure]:
    """Of a further token and of a request as such: long answers against short ones, as many at once."""
    token_us = _further_us(turns, _outside_s)
    engine_us = _further_us(turns, lambda turn: turn.engine_s)
    short_s = _medians(turns, SHORT, _outside_s)
    request_ms = {name: 1000 * s / SHORT.at_once - SHORT.tokens * token_us[name] / 1000 for name, s in short_s.items()}
    parts = {name: _further_us({OURS: turns[OURS]}, partial(_outside_s, part=name))[OURS] for name in ("web", "worker")}
    return [
        _line(f"CPU of a further token outside EngineCore, {JUDGED}", "µs", token_us, details=parts),
        _line("that to EngineCore's own", "%", {name: 100 * us / engine_us[name] for name, us in token_us.items()}),
        _line("CPU of a request outside EngineCore, its tokens apart", "ms", request_ms),
    ]


def _outside_s(turn: Turn, part: str = "") -> float:
    """Of one process, or of all."""
    return turn.outside_s[part] if part else sum(turn.outside_s.values())


def _further_us(turns: Turns, value: Value) -> Mapping[str, float]:
    long_s, short_s = _medians(turns, JUDGED, value), _medians(turns, SHORT, value)
    tokens = JUDGED.at_once * JUDGED.tokens - SHORT.at_once * SHORT.tokens
    return {name: 1e6 * (long_s[name] - short_s[name]) / tokens for name in turns}


def _medians(turns: Turns, load: Load, value: Value) -> Mapping[str, float]:
    return {name: statistics.median(map(value, by[load])) for name, by in turns.items() if load in by}


def _ratios(turns: Turns, load: Load, value: Value) -> Mapping[str, float]:
    """Each turn over the bare engine's of the same round; the median of that."""
    bare = [value(turn) for turn in turns[BARE][load]]
    return {
        name: statistics.median(value(turn) / other for turn, other in zip(by[load], bare, strict=True))
        for name, by in turns.items()
        if load in by
    }


def _line(
    what: str,
    unit: str,
    found: Mapping[str, float],
    bound: Bound | None = None,
    details: Mapping[str, float] | None = None,
) -> Figure:
    peers = {name: value for name, value in found.items() if name not in (OURS, BARE)}
    return Figure(what, unit, found[OURS], bound, peers, found[BARE], details or {})
