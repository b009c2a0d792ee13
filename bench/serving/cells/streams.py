"""How many long streams the whole path carries on one core, and what a token of them costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.serving import script
from bench.serving.bench import Bench, Target
from bench.serving.figures import Bound, Figure, at_least, spread
from bench.serving.job import Job, Outcome
from bench.serving.meter import Record
from bench.serving.pace import common_window, gaps_ms, lags_ms, tokens

LADDER = (25, 50, 100, 150, 200, 300, 400)
LAG_MS = 150.0
RAMP_PER_S = 12.0
HOLD_S = 10.0
LEAST_WINDOW_S = 4.0


@dataclass(frozen=True)
class Rung:
    """So many streams at once."""

    streams: int
    failures: int
    window_s: float
    lags_ms: Mapping[str, float]
    gaps_ms: Mapping[str, float]
    cpu_us: Mapping[str, float]  # of a token, by process
    resident_mb: Mapping[str, float]  # at the end of the window

    @property
    def is_held(self) -> bool:
        """Whether all of them ran at once, and in time."""
        return not self.failures and self.window_s >= LEAST_WINDOW_S and self.lags_ms.get("p99", LAG_MS) < LAG_MS


async def streams(bench: Bench) -> Sequence[Figure]:
    """Ours, the others, bare parts: up the ladder until streams come late."""
    own = await _climbed(bench, await bench.ours(script.long_streams()))
    peers = {name: await _climbed(bench, peer) for name, peer in bench.peers.items()}
    parts = await _climbed(bench, await bench.bare())
    return [
        Figure(
            f"streams at {script.LONG_TOKENS_PER_S:g} tokens/s, whole path, token to client p99 < {LAG_MS:g} ms",
            "streams",
            _highest(own),
            at_least(200),
            {name: _highest(rungs) for name, rungs in peers.items()},
            _highest(parts),
            {"ours": own, "the parts alone": parts, **peers},
        ),
        Figure(
            "what a core would carry by their CPU time",
            "streams",
            _carried(own),
            peers={name: _carried(rungs) for name, rungs in peers.items()},
            parts=_carried(parts),
        ),
        Figure(
            "CPU of a token, whole path, long streams",
            "µs",
            _cpu_us(own),
            Bound(200),
            {name: _cpu_us(rungs) for name, rungs in peers.items()},
            _cpu_us(parts),
        ),
        Figure("of it the web process", "µs", _cpu_us(own, "web")),
        Figure("of it the worker", "µs", _cpu_us(own, "worker")),
        Figure("CPU of a token, many streams to few", "×", _growth(own), parts=_growth(parts)),
        Figure("memory of the web process, an open stream", "kB", _kb_a_stream(own, "web")),
        Figure("memory of the worker, an open stream", "kB", _kb_a_stream(own, "worker")),
    ]


async def _climbed(bench: Bench, target: Target) -> Sequence[Rung]:
    rungs: list[Rung] = []
    for count in LADDER:
        rungs.append(await _rung(bench, target, count))
        if not rungs[-1].is_held and bench.was_disturbed:
            rungs[-1] = await _rung(bench, target, count)
        if not rungs[-1].is_held:
            break
    return rungs


async def _rung(bench: Bench, target: Target, count: int) -> Rung:
    ramp_s = count / RAMP_PER_S
    job = Job(
        target.surface,
        target.port,
        target.lanes(count),
        count,
        per_s=RAMP_PER_S,
        model=target.model,
        max_output_tokens=round((ramp_s + HOLD_S) * script.LONG_TOKENS_PER_S),
        fewer_tokens_each=script.LONG_TOKENS_PER_S / RAMP_PER_S,
        keeps_deltas=True,
        patience_s=2 * (ramp_s + HOLD_S),
    )
    outcome, record = await bench.run(job, target.pids)
    rung = _read(count, outcome, record)
    bench.say(
        f"{target.name}, {count} streams: p99 {rung.lags_ms.get('p99', 0):.0f} ms late, gaps p99 "
        f"{rung.gaps_ms.get('p99', 0):.0f} ms, {sum(rung.cpu_us.values()):.0f} µs CPU a token, {rung.failures} failed; "
        f"all at once for {rung.window_s:.0f} s, generator at {outcome.cpu_share:.0%}, "
        f"{bench.noise[-1]}"
    )
    await target.quiet()
    return rung


def _read(count: int, outcome: Outcome, record: Record) -> Rung:
    begun = [sample for sample in outcome.samples if sample.deltas]
    if not begun:
        return Rung(count, outcome.failures, 0.0, {}, {}, {}, {})
    window = common_window(begun)
    came = max(1, sum(tokens(sample, window) for sample in begun))
    lags = [lag for sample in begun for lag in lags_ms(sample, script.LONG_TOKENS_PER_S, window)]
    gaps = [gap for sample in begun for gap in gaps_ms(sample, window)]
    cpu_us = {name: 1e6 * record.used_s(name, window.begin, window.end) / came for name in record.pids}
    resident = {name: record.resident_mb(name, window.end) for name in record.pids}
    return Rung(count, outcome.failures, window.seconds, spread(lags), spread(gaps), cpu_us, resident)


def _highest(rungs: Sequence[Rung]) -> float:
    return max((rung.streams for rung in rungs if rung.is_held), default=0)


def _top(rungs: Sequence[Rung]) -> Rung:
    """The highest that was held, else the first."""
    return next((rung for rung in reversed(rungs) if rung.is_held), rungs[0])


def _cpu_us(rungs: Sequence[Rung], name: str | None = None) -> float:
    used = _top(rungs).cpu_us
    return used.get(name, 0.0) if name else sum(used.values())


def _carried(rungs: Sequence[Rung]) -> float | None:
    """An estimate that no neighbour spoils; each stream more makes a token cheaper, as long as all are in time."""
    used = _cpu_us(rungs)
    return 1e6 / (script.LONG_TOKENS_PER_S * used) if used else None


def _growth(rungs: Sequence[Rung]) -> float | None:
    first = sum(rungs[0].cpu_us.values())
    return _cpu_us(rungs) / first if first and _top(rungs) is not rungs[0] else None


def _kb_a_stream(rungs: Sequence[Rung], name: str) -> float | None:
    first, top = rungs[0], _top(rungs)
    more = top.streams - first.streams
    return 1000 * (top.resident_mb[name] - first.resident_mb[name]) / more if more else None
