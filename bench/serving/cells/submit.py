"""The POST of a question alone, with no worker to answer it: how many in a second, and what one takes."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from dataclasses import replace

from bench.serving import script
from bench.serving.bench import Bench, Ours, Target
from bench.serving.counting import counts, less
from bench.serving.figures import Bound, Figure, at_least, percentile, spread
from bench.serving.job import Job, Outcome
from bench.serving.meter import Record

AT_ONCE: dict[int, Bound | None] = {1: None, 4: None, 16: at_least(220)}
SECONDS = 8.0
MOST_PER_S = 1000
BARE_MOST_PER_S = 5000
STEADY_PER_S, STEADY_S = 100, 10.0
WARM_UP = 60
STATISTICS_S = 2.0  # those of PostgreSQL come late
COUNTED = ("PostgreSQL, commits", "broker, commands", "streams, commands")


async def submit(bench: Bench) -> Sequence[Figure]:
    """Saturated over some connections, then at a steady rate. CPU time is what noise cannot spoil."""
    ours = await bench.ours(script.replies())
    figures: list[Figure] = []
    async with ours.site.world.workers[0].down(signal.SIGTERM):
        web = {"web": ours.pids["web"]}
        await bench.run(_saturating(ours, 1, WARM_UP), web)
        figures += await _counted(bench, ours)
        bare = await bench.bare()
        for at_once, bound in AT_ONCE.items():
            outcome, record = await bench.run(_saturating(ours, at_once, MOST_PER_S), web)
            parts, _ = await bench.run(_saturating(bare, at_once, BARE_MOST_PER_S), bare.pids)
            figures += _saturated(at_once, bound, outcome, record)
            figures[-2] = replace(figures[-2], parts=parts.served_per_s)
            bench.say(
                f"{at_once} at once: {outcome.served_per_s:.0f}/s, {figures[-1].ours:.2f} ms CPU each, "
                f"{outcome.failures} failed; bare {parts.served_per_s:.0f}/s; "
                f"{bench.noise[-2]}"
            )
        steady, record = await bench.run(_steady(ours), web)
        parts, _ = await bench.run(_steady(bare), bare.pids)
    await bench.close_site()  # with thousands of questions that nobody answers
    figures.append(_at_rate(steady, parts))
    bench.say(f"{STEADY_PER_S}/s: p99 {figures[-1].ours:.1f} ms, {steady.failures} failed")
    return figures


async def _counted(bench: Bench, ours: Ours) -> Sequence[Figure]:
    """What servers count of a POST: figures that no noise spoils. The reaper's, every two seconds, are among them."""
    before = counts(ours.site.world)
    await bench.run(_saturating(ours, 1, WARM_UP), ours.pids)
    await asyncio.sleep(STATISTICS_S)
    found = less(counts(ours.site.world), before)
    return [Figure(f"submit, {name}", "", found[name] / WARM_UP) for name in COUNTED]


def _saturating(target: Target, at_once: int, most_per_s: int) -> Job:
    count = round(SECONDS * most_per_s) if most_per_s > WARM_UP else WARM_UP
    lanes = target.lanes(count)
    return Job(target.surface, target.port, lanes, count, at_once=at_once, seconds=SECONDS, is_post_only=True)


def _steady(target: Target) -> Job:
    count = round(STEADY_PER_S * STEADY_S)
    return Job(target.surface, target.port, target.lanes(count), count, per_s=STEADY_PER_S, is_post_only=True)


def _saturated(at_once: int, bound: Bound | None, outcome: Outcome, record: Record) -> list[Figure]:
    begin = min(sample.sent_at for sample in outcome.samples)
    end = max(sample.posted_at for sample in outcome.samples)
    cpu_ms = 1000 * record.used_s("web", begin, end) / max(1, len(outcome.served))
    details = {"failed": dict(outcome.reasons), "POST": spread([sample.post_ms for sample in outcome.served])}
    over = "1 connection" if at_once == 1 else f"{at_once} connections"
    return [
        Figure(f"submit alone over {over}", "requests/s", outcome.served_per_s, bound, details=details),
        Figure(f"submit, CPU of the web process, {over}", "ms", cpu_ms),
    ]


def _at_rate(outcome: Outcome, parts: Outcome) -> Figure:
    def p99(of: Outcome) -> float | None:
        return percentile([sample.post_ms for sample in of.served], 99) if of.served else None

    details = {"failed": dict(outcome.reasons), "POST": spread([sample.post_ms for sample in outcome.served])}
    what = f"submit at {STEADY_PER_S} requests/s, p99"
    return Figure(what, "ms", p99(outcome), Bound(30), parts=p99(parts), details=details)
