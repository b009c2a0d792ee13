"""How many requests in a second a server sustains: answers of 16 tokens, with the first one in time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.serving import script
from bench.serving.bench import Bench, Target
from bench.serving.cells.ttft import added_ms
from bench.serving.figures import Figure, at_least, percentile, spread
from bench.serving.job import Job

LADDER = (10, 15, 20, 25, 30, 40)
P99_MS = 200.0
WARM_UP = 40
CEILING_AT_ONCE, CEILING_S, CEILING_MOST = 600, 6.0, 30_000


@dataclass
class Climb:
    """How high one server came, and what each rung was like."""

    highest: int = 0
    rungs: dict[str, Any] = field(default_factory=dict)
    cpu_ms: dict[str, float] = field(default_factory=dict)  # of a request at the highest rung, by process

    @property
    def carried(self) -> float | None:
        """Requests/s that would fill a core: an estimate that no neighbour spoils."""
        used = sum(self.cpu_ms.values())
        return 1000 / used if used else None


async def sustain(bench: Bench) -> Sequence[Figure]:
    """Ours, then the others; then what the load generator and a bare application come to."""
    own = await _climbed(bench, await bench.ours(script.replies()))
    peers = {name: await _climbed(bench, peer) for name, peer in bench.peers.items()}
    ceiling, share = await _ceiling(bench)
    what = f"sustained for {bench.options.seconds:g} s, TTFT added p99 ≤ {P99_MS:g} ms"
    return [
        Figure(
            what,
            "requests/s",
            own.highest,
            at_least(25),
            {name: climb.highest for name, climb in peers.items()},
            ceiling,
            {"ours": own.rungs, **{name: climb.rungs for name, climb in peers.items()}},
        ),
        Figure(
            "what a core would carry by their CPU time",
            "requests/s",
            own.carried,
            peers={name: climb.carried for name, climb in peers.items()},
        ),
        Figure(
            "CPU of a 16-token request at that rate",
            "ms",
            sum(own.cpu_ms.values()) or None,
            peers={name: sum(climb.cpu_ms.values()) or None for name, climb in peers.items()},
            details=own.cpu_ms,
        ),
        Figure("the load generator's part of its core at the parts' ceiling", "%", None, parts=100 * share),
    ]


async def _climbed(bench: Bench, target: Target) -> Climb:
    climb = Climb()
    warm = Job(target.surface, target.port, target.lanes(WARM_UP), WARM_UP, per_s=LADDER[0], model=target.model)
    await bench.run(warm, target.pids)
    for rate in LADDER:
        is_held = await _holds(bench, target, rate, climb)
        if not is_held and bench.was_disturbed:
            is_held = await _holds(bench, target, rate, climb)
        if not is_held:
            break
        climb.highest = rate
    return climb


async def _holds(bench: Bench, target: Target, rate: int, climb: Climb) -> bool:
    count = round(rate * bench.options.seconds)
    job = Job(target.surface, target.port, target.lanes(count), count, per_s=rate, model=target.model)
    outcome, record = await bench.run(job, target.pids)
    added = added_ms(outcome)
    p99 = percentile(added, 99) if added else float("inf")
    begin = min(sample.sent_at for sample in outcome.samples)
    cpu_ms = {name: 1000 * record.used_s(name, begin, begin + outcome.seconds) / count for name in target.pids}
    seen = {"failed": dict(outcome.reasons), "CPU ms": cpu_ms, "noise": bench.noise[-1]}
    climb.rungs[str(rate)] = {**spread(added), **seen}
    bench.say(f"{target.name}, {rate} requests/s: p99 {p99:.0f} ms added, {outcome.failures} failed; {bench.noise[-1]}")
    await target.quiet()
    is_held = p99 <= P99_MS and not outcome.failures
    if is_held or not climb.cpu_ms:
        climb.cpu_ms = cpu_ms
    return is_held


async def _ceiling(bench: Bench) -> tuple[float, float]:
    """Requests/s of a bare application, and the part of its core that the load generator took for them."""
    bare = await bench.bare()
    lanes = bare.lanes(CEILING_AT_ONCE)
    job = Job(bare.surface, bare.port, lanes, CEILING_MOST, at_once=CEILING_AT_ONCE, seconds=CEILING_S)
    outcome, _ = await bench.run(job, bare.pids)
    bench.say(
        f"the parts alone: {outcome.served_per_s:.0f} requests/s, generator at {outcome.cpu_share:.0%} of its core"
    )
    return outcome.served_per_s, outcome.cpu_share
