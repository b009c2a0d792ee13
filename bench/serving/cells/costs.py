"""What one run takes of each part: rows, commands, bytes and CPU time, which docs/scale.md multiplies."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from bench.serving import script
from bench.serving.bench import Bench, Ours
from bench.serving.counting import Counts, counts, less, over
from bench.serving.figures import Figure
from bench.serving.job import Job

SHORT, LONG = 16, 116
RUNS, AT_ONCE = 96, 8
REST_S = 10.0
SETTLE_S = 3.0


async def costs(bench: Bench) -> Sequence[Figure]:
    """Runs with short answers, then with long ones: what each takes, and by the difference what a token takes."""
    ours = await bench.ours(script.long_streams())
    await _asked(bench, ours, AT_ONCE, SHORT)
    before, began_at = counts(ours.site.world), time.monotonic()
    await asyncio.sleep(REST_S)
    rest = over(less(counts(ours.site.world), before), time.monotonic() - began_at)
    short = await _of_each(bench, ours, SHORT, rest)
    long = await _of_each(bench, ours, LONG, rest)
    token = over(less(long, short), LONG - SHORT)
    return [
        figure
        for name in short
        for figure in (
            Figure(f"a run: {name}", "", short[name] - SHORT * token[name], details={"at 16 tokens": short[name]}),
            Figure(f"a token: {name}", "", token[name]),
        )
    ]


async def _of_each(bench: Bench, ours: Ours, tokens: int, rest: Counts) -> Counts:
    """Of a run with such an answer, with what happens anyway taken off."""
    before, began_at = counts(ours.site.world), time.monotonic()
    await _asked(bench, ours, RUNS, tokens)
    found, seconds = less(counts(ours.site.world), before), time.monotonic() - began_at
    bench.say(f"{RUNS} runs of {tokens} tokens in {seconds:.0f} s")
    return {name: (count - rest[name] * seconds) / RUNS for name, count in found.items()}


async def _asked(bench: Bench, ours: Ours, runs: int, tokens: int) -> None:
    lanes = ours.lanes(runs)
    job = Job(ours.surface, ours.port, lanes, runs, at_once=AT_ONCE, max_output_tokens=tokens, patience_s=60)
    await bench.run(job, ours.pids)
    await asyncio.sleep(SETTLE_S)  # the statistics of PostgreSQL come late
