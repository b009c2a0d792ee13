"""What the product takes without an engine's model: memory, a start, and what it does while nobody asks."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack

from bench.serving import script
from bench.serving.bench import Bench
from bench.serving.figures import Bound, Figure
from bench.serving.job import Job
from bench.serving.meter import cpu_s, memory_mb
from bench.serving.site import Site
from tests.faults.parts import RESTART_AFTER_S

WARM_UP = 100
SETTLE_S = 5.0
IDLE_S = 20.0


async def footprint(bench: Bench) -> Sequence[Figure]:
    """Web, worker and reaper. Databases and Valkey are not counted: they are whatever their operator makes of them."""
    ours = await bench.ours(script.replies())
    start_s = await _start_s(ours.site)
    bench.say(f"{start_s:.1f} s from nothing to ready")
    tested = ours.site.tested  # others than before
    await bench.run(Job(ours.surface, ours.port, ours.lanes(WARM_UP), WARM_UP, at_once=4), tested)
    await asyncio.sleep(SETTLE_S)
    idle = await _idle_shares(ours.site)
    memory = {part.name: memory_mb(part.pid) for part in ours.site.processes}
    bench.say(", ".join(f"{name} {mb:.0f} MB" for name, mb in memory.items()))
    behind = {part.name: memory_mb(part.pid) for part in ours.site.world.servers}
    return [
        Figure("memory without engine: web, worker, reaper", "MB", sum(memory.values()), Bound(600), details=memory),
        Figure("memory of PostgreSQL and two Valkeys beside them", "MB", sum(behind.values()), details=behind),
        Figure("start without engine, until all are ready", "s", start_s, Bound(10)),
        Figure("idle, of a core", "%", 100 * sum(idle.values()), Bound(2), details=idle),
    ]


async def _start_s(site: Site) -> float:
    """Stop web, worker and reaper; seconds from when they are started again until all serve."""
    async with AsyncExitStack() as stopped:
        for part in site.processes:
            await stopped.enter_async_context(part.down(signal.SIGTERM))
        await asyncio.sleep(2 * RESTART_AFTER_S)  # or the last one's successor would be held back for so long
        began_at = time.monotonic()
    while not all(part.is_ready for part in site.processes):  # noqa: ASYNC110  (nobody to wake us)
        await asyncio.sleep(0.02)
    return time.monotonic() - began_at


async def _idle_shares(site: Site) -> Mapping[str, float]:
    before = {part.name: cpu_s(part.pid) for part in site.processes}
    await asyncio.sleep(IDLE_S)
    return {part.name: (cpu_s(part.pid) - before[part.name]) / IDLE_S for part in site.processes}
