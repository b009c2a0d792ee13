"""What grows with how much there is: chats of a user, messages of a chat, runs that wait."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from dataclasses import dataclass

from bench.serving import script
from bench.serving.bench import Bench, Ours
from bench.serving.crowding import crowd_with_runs, fill_chats, give_chats
from bench.serving.figures import Bound, Figure
from bench.serving.job import Job, Lane, Surface
from bench.serving.meter import cpu_s

SIZES = (10, 1_000, 10_000)
ASKED = 60
LONG_CHATS = 15
PASSES_S = 10.0  # five rounds of the reaper
SETTLE_S = 6.0
# Twice is noise at the tenfold; a thing that is looked at one by one grows a hundredfold.
BOUND = Bound(2.0)


@dataclass(frozen=True)
class Costs:
    """CPU milliseconds of one act at each of the sizes."""

    what: str
    ms: Sequence[float]

    def figure(self, since: int) -> Figure:
        """How the largest compares with the size `since`."""
        told = {f"{size:,}": ms for size, ms in zip(SIZES, self.ms, strict=True)}
        ratio = self.ms[-1] / max(1e-9, self.ms[SIZES.index(since)])
        return Figure(f"{self.what}, CPU, {since:,} to {SIZES[-1]:,}", "×", ratio, BOUND, details={"ms": told})


async def growth(bench: Bench) -> Sequence[Figure]:
    """Each of the three by itself, on a product without a worker."""
    ours = await bench.ours(script.replies())
    async with ours.site.world.workers[0].down(signal.SIGTERM):
        await _cpu_ms(bench, ours, _asking(ours, ours.lanes(ASKED)))
        chats = await _of_chats(bench, ours)
        messages = await _of_messages(bench, ours)
        queued = await _of_queued(bench, ours)
    await bench.close_site()
    return [
        *(costs.figure(SIZES[0]) for costs in chats),
        # The smallest chats do not fill the model's window: until then a prompt does grow with its chat.
        *(costs.figure(SIZES[1]) for costs in messages),
        *(costs.figure(SIZES[0]) for costs in queued),
    ]


async def _of_chats(bench: Bench, ours: Ours) -> Sequence[Costs]:
    """Each size is a user's of their own."""
    pages, submits = [], []
    for size, key in zip(SIZES, ours.site.keys, strict=False):
        chats = give_chats(ours.site, key, size)
        pages.append(await _cpu_ms(bench, ours, _looking(ours, "/api/chats", [Lane(key)])))
        lanes = [Lane(key, chat) for chat in give_chats(ours.site, key, ASKED)]
        submits.append(await _cpu_ms(bench, ours, _asking(ours, lanes)))
        bench.say(f"{len(chats):,} chats: a page of the list {pages[-1]:.1f} ms CPU, a submit {submits[-1]:.1f} ms")
    return [Costs("a page of the list of chats, by chats", pages), Costs("submit, by chats of the user", submits)]


async def _of_messages(bench: Bench, ours: Ours) -> Sequence[Costs]:
    pages, submits = [], []
    for size in SIZES:
        lanes = ours.lanes(LONG_CHATS)
        fill_chats(ours.site, [lane.chat_id for lane in lanes], size)
        pages.append(await _cpu_ms(bench, ours, _looking(ours, "/api/chats/{chat}/messages", lanes)))
        submits.append(await _cpu_ms(bench, ours, _asking(ours, lanes)))
        bench.say(f"{size:,} messages: a page of them {pages[-1]:.1f} ms CPU, a submit {submits[-1]:.1f} ms")
    return [Costs("a page of a chat, by messages", pages), Costs("submit, by messages of the chat", submits)]


async def _of_queued(bench: Bench, ours: Ours) -> Sequence[Costs]:
    """Those that wait come past the product: the reaper finds them, and enters them in the room."""
    submits, passes, database = [], [], []
    there = 0
    for size in SIZES:
        crowd_with_runs(ours.site, size - there)
        there = size
        await asyncio.sleep(SETTLE_S + size / 2000)
        submits.append(await _cpu_ms(bench, ours, _asking(ours, ours.lanes(ASKED))))
        parts = (ours.site.world.reapers[0].pid, ours.site.world.postgres.pid)
        before = [cpu_s(pid) for pid in parts]
        await asyncio.sleep(PASSES_S)
        used = [1000 * (cpu_s(pid) - was) / (PASSES_S / 2) for pid, was in zip(parts, before, strict=True)]
        passes.append(used[0])
        database.append(used[1])
        bench.say(
            f"{size:,} runs wait: a submit {submits[-1]:.1f} ms CPU, a pass of the reaper {used[0]:.0f} ms, "
            f"and of PostgreSQL {used[1]:.0f} ms"
        )
    return [
        Costs("submit, by runs that wait", submits),
        Costs("a pass of the reaper, by runs that wait", passes),
        Costs("a pass of the reaper in PostgreSQL, by runs that wait", database),
    ]


def _asking(ours: Ours, lanes: Sequence[Lane]) -> Job:
    return Job(Surface.PALAVER, ours.port, lanes, len(lanes), is_post_only=True)


def _looking(ours: Ours, path: str, lanes: Sequence[Lane]) -> Job:
    return Job(Surface.PAGE, ours.port, lanes, ASKED, content=path)


async def _cpu_ms(bench: Bench, ours: Ours, job: Job) -> float:
    """Of the web process, a request."""
    outcome, record = await bench.run(job, {"web": ours.pids["web"]})
    if outcome.failures:
        failed = next(sample for sample in outcome.samples if sample.failure)
        bench.say(f"{outcome.failures} of {len(outcome.samples)} failed, the first with {failed.failure}")
    return 1000 * record.used_s("web", record.at[0], record.at[-1]) / max(1, len(outcome.samples))
