"""How two saturated workers divide their tokens between tiers, and how soon an operator's change shows.

    MODEL_PATH=.palaver/models/SmolLM2-135M-Instruct python -m bench.fairness [--runs 2000]
    ... python -m bench.fairness --lookahead 1 2 4 8 16 32 [--runs 400]

A product of its own, servers included, on the scripted engine: no model is loaded. Two workers of six slots, real
Celery, PostgreSQL and Valkey. A user of each tier keeps runs waiting all the time; answers differ in length, and each
reserves its tier's whole output cap. All figures come from the rows.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
from bisect import bisect
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

from bench.operating import Operator
from bench.pressure import users
from bench.simulation.figures import percentile
from bench.starts import Rows, Started, longest_stretch, shares, utilisation
from tests.faults.world import Plan, World, new_folder, remove, running

WORKERS, SLOTS = 2, 6
WEIGHTS = {"pro": 8, "plus": 3, "free": 1}
DEPTH = 30  # runs that wait in each tier
LOOK_EVERY_S = 1.0
SETTLE_S = 5.0  # until all slots are taken
VISITS_PER_S = 0.3
SHOWS_WITHIN_S = 10.0
SCRIPT = {"SCRIPT_SLOTS": str(SLOTS), "SCRIPT_TOKENS_PER_S": "50", "REQUESTS_PER_MINUTE": "1000000"}
# Less than Pro's share: users who ask one question after the other, and parts of the share asked for at random.
PRO_USERS, PRO_DEMANDS = (1, 2, 3), (0.1, 0.25, 0.5)


@asynccontextmanager
async def stack(wishes: Mapping[str, str]) -> AsyncIterator[World]:
    """The product."""
    folder = new_folder()
    try:
        async with running(Plan(WORKERS, webs=1, reapers=1, wishes={**SCRIPT, **wishes}), folder) as world:
            yield world
    finally:
        remove(folder)


class Bench:
    """Scenes on one product."""

    def __init__(self, world: World, runs: int) -> None:
        self._world, self._runs = world, runs
        self._rows = Rows(world.database())
        self._users = dict(zip(WEIGHTS, users(world, list(WEIGHTS)), strict=True))
        self._runs_per_s = 0.0

    async def all_tiers(self) -> None:
        """All three saturated."""
        async with self._pressing(*WEIGHTS):
            since, until = await self._ended(self._runs)
        ended = self._print_shares("all tiers saturated", since, until, WEIGHTS)
        self._runs_per_s = len(ended) / (until - since)
        print_stretch([run for run in self._rows.started() if since <= run.started_at < until])

    async def idle_pro(self) -> None:
        """Plus and Free share what Pro leaves."""
        async with self._pressing("plus", "free"):
            since, until = await self._ended(self._runs // 4)
        self._print_shares("Pro idle", since, until, {"plus": 3, "free": 1})

    async def modest_pro(self) -> None:
        """Pro asks for less than its share while Plus and Free saturate: one question after the other, or at random."""
        pro = self._users["pro"]
        for lanes in PRO_USERS:
            await self._modest(f"{lanes} of Pro ask one question after the other", pro.conversing(lanes))
        for part in PRO_DEMANDS:
            runs_per_s = self._runs_per_s * part * WEIGHTS["pro"] / sum(WEIGHTS.values())
            await self._modest(f"Pro asks at random for {part:.0%} of its share", pro.asking(runs_per_s))

    async def _modest(self, title: str, demand: AbstractAsyncContextManager[object]) -> None:
        async with self._pressing("plus", "free"), demand:
            since, until = await self._ended(self._runs // 6)
        print_waits(title, self._rows.within(since, until))

    async def another_weight(self, operator: Operator) -> None:
        """Free's weight is changed in the admin under load."""
        async with self._pressing(*WEIGHTS):
            await self._ended(self._runs // 16)
            changed_at = await self._changed(operator.weigh, "free", 8)
            _, until = await self._ended(self._runs // 4)
        self._print_change("Free's weight from 1 to 8", changed_at, until, {**WEIGHTS, "free": 8})
        await asyncio.to_thread(operator.weigh, "free", 1)

    async def another_tier(self, operator: Operator) -> None:
        """The only user of Pro who asks is one that the admin has just moved there."""
        [mover] = users(self._world, ["free"])
        async with self._pressing("plus", "free"), mover.pressing(DEPTH):
            await self._ended(self._runs // 16)
            changed_at = await self._changed(operator.move, mover.id, "pro")
            _, until = await self._ended(self._runs // 4)
        self._print_change("a user from Free to Pro", changed_at, until, WEIGHTS)

    async def visitor(self, lookahead: int) -> None:
        """All saturated, and in Plus somebody who asks for little."""
        [visitor] = users(self._world, ["plus"])
        async with self._pressing(*WEIGHTS), visitor.asking(VISITS_PER_S) as visits:
            since, until = await self._ended(self._runs)
        ended = self._print_shares(f"lookahead {lookahead}", since, until, WEIGHTS)
        busy = utilisation(self._rows.started(), since, until, WORKERS * SLOTS)
        waits_s = [run.wait_s for run in ended if run.id in set(visits)]
        print(
            f"    slots in use {busy:.1%}, {sum(run.charge for run in ended) / (until - since):.0f} tokens/s; a"
            f" visitor of Plus waits {statistics.median(waits_s):.2f} s (median of {len(waits_s)}),"
            f" {max(waits_s):.2f} s at most"
        )

    @asynccontextmanager
    async def _pressing(self, *tiers: str) -> AsyncIterator[None]:
        """With nothing left of the scene before."""
        while self._rows.live():  # noqa: ASYNC110  (nobody to wake us)
            await asyncio.sleep(LOOK_EVERY_S)
        async with AsyncExitStack() as pressing:
            for tier in tiers:
                await pressing.enter_async_context(self._users[tier].pressing(DEPTH))
            await asyncio.sleep(SETTLE_S)
            yield

    async def _ended(self, runs: int) -> tuple[float, float]:
        """From when until when so many ended."""
        since = self._rows.now()
        while len(self._rows.within(since, self._rows.now())) < runs:  # noqa: ASYNC110
            await asyncio.sleep(LOOK_EVERY_S)
        return since, self._rows.now()

    async def _changed(self, change: Callable[[str, Any], None], of: str, to: object) -> float:
        """When the operator's change had been saved, by the database's clock."""
        await asyncio.to_thread(change, of, to)
        return self._rows.now()

    def _print_shares(self, title: str, since: float, until: float, weights: Mapping[str, int]) -> Sequence[Started]:
        ended = self._rows.within(since, until)
        fewest = min(self._rows.least_waiting(tier, since, until) for tier in weights)
        print(
            f"{title}: {len(ended)} runs in {until - since:.0f} s: {beside(shares(ended), weights)};"
            f" never fewer than {fewest} waited of a tier",
            flush=True,
        )
        return ended

    def _print_change(self, title: str, changed_at: float, until: float, weights: Mapping[str, int]) -> None:
        self._print_shares(f"{title}, from {SHOWS_WITHIN_S:.0f} s after", changed_at + SHOWS_WITHIN_S, until, weights)
        for since in range(-10, 30, 5):
            runs = [run for run in self._rows.started() if since <= run.started_at - changed_at < since + 5]
            if not any(run.charge for run in runs):
                break  # not yet
            print(f"    started from {since:+} s to {since + 5:+} s: {beside(shares(runs), weights)}")


def beside(found: Mapping[str, float], weights: Mapping[str, int]) -> str:
    """Shares, each with how far it is off what the weights say."""
    whole = sum(weights.values())
    due = {tier: weights.get(tier, 0) / whole for tier in found}
    parts = [f"{tier} {share:.1%} ({share / due[tier] - 1:+.1%})" for tier, share in found.items() if due[tier]]
    return ", ".join(parts)


def print_stretch(runs: Sequence[Started]) -> None:
    """The longest without a start of Free, beside its bound (docs/fairness.md), which counts each worker for itself."""
    stretch = longest_stretch(runs, "free")
    others = [weight for tier, weight in WEIGHTS.items() if tier != "free"]
    largest = max(run.charge for run in runs)
    bound = WORKERS * (SLOTS + 1) * largest * (sum(others) / WEIGHTS["free"] + len(others))
    print(
        f"    longest stretch without a start of Free: {stretch.starts} starts, {stretch.tokens:,} tokens"
        f" (bound {bound:,.0f}), {stretch.seconds:.1f} s",
        flush=True,
    )


def print_waits(title: str, runs: Sequence[Started]) -> None:
    """Pro's, in mean times from one slot's release to the next, beside how long the next release alone takes."""
    releases = sorted(run.finished_at for run in runs if run.finished_at)
    mean_s = (releases[-1] - releases[0]) / (len(releases) - 1)
    pro = [run for run in runs if run.tier == "pro" and releases[0] < run.asked_at < releases[-1]]
    waits = [run.wait_s / mean_s for run in pro]
    floor = [(releases[bisect(releases, run.asked_at)] - run.asked_at) / mean_s for run in pro]
    print(
        f"{title}: {shares(runs)['pro']:.0%} of the tokens, {len(pro)} runs wait {statistics.median(waits):.1f} slot"
        f" releases (median), {percentile(waits, 95):.1f} (p95); the next release alone is {percentile(floor, 95):.1f}"
        f" away (p95), {1000 * mean_s:.0f} ms on average from the one before",
        flush=True,
    )


async def scenes(runs: int) -> None:
    """Everything but the lookahead."""
    async with stack({}) as world:
        bench, operator = Bench(world, runs), await asyncio.to_thread(Operator, world.ports[0], world.environ)
        await bench.all_tiers()
        await bench.idle_pro()
        await bench.modest_pro()
        await bench.another_weight(operator)
        await bench.another_tier(operator)


async def lookaheads(values: Sequence[int], runs: int) -> None:
    """A product for each."""
    for value in values:
        async with stack({"DISPATCH_LOOKAHEAD": str(value)}) as world:
            await Bench(world, runs).visitor(value)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Shares of tiers on real workers.")
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--lookahead", type=int, nargs="+", help="measure these instead")
    options = parser.parse_args()
    asyncio.run(lookaheads(options.lookahead, options.runs) if options.lookahead else scenes(options.runs))


if __name__ == "__main__":
    main()
