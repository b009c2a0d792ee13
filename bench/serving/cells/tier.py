"""The stream tier alone: how many live streams one web process carries on one core, and what an event costs it."""

from __future__ import annotations

from collections.abc import Sequence

from bench.serving import stream_tier
from bench.serving.bench import Bench
from bench.serving.figures import Figure


async def tier(bench: Bench) -> Sequence[Figure]:
    """Rung by rung, over servers of its own: its writers stand for the workers."""
    await bench.close_site()
    bench.say(f"live streams, {stream_tier.SECONDS:.0f} s a rung")
    return await stream_tier.measure()
