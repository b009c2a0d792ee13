"""A product at the size of a large one: thousands of workers in cells, and more prompts than they can serve."""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from multiprocessing import get_context

from bench.simulation.cell import Setting
from bench.simulation.demand import Crowd, Prompt, prompts
from bench.simulation.figures import filled, percentile, shares
from bench.simulation.site import Plan, Site
from bench.simulation.tiers import a_model, tiers

# Which part of the prompts each tier asks.
SATURATING = {"free": 0.13, "plus": 0.27, "pro": 0.60}


@dataclass(frozen=True, slots=True)
class Size:
    """How much of everything. Figures are taken from `warm_s` on."""

    prompts_per_s: float = 20_000
    users: int = 1_200_000
    cells: int = 40
    waiting: int = 24_000  # at most, over all cells
    seconds: float = 20
    warm_s: float = 10
    shares: Mapping[str, float] = field(default_factory=lambda: SATURATING)
    setting: Setting = field(default_factory=lambda: Setting(workers=75, slots=32))
    most_output_tokens: int = 1024
    seed: int = 20

    def plan(self) -> Plan:
        """Tiers as after the migrations, but for the depth of queues."""
        depth = self.waiting // self.cells
        model = a_model(queue_depth=depth, max_output_tokens=self.most_output_tokens)
        return Plan(tiers("free", "plus", "pro", queue_depth=depth // 2), model, self.cells, self.setting)

    def crowd(self) -> Crowd:
        """Who asks."""
        return Crowd(self.users, self.prompts_per_s, self.shares, output_tokens=250)

    def trace(self) -> Iterator[Prompt]:
        """For ever: at the start as many at once as there are slots and places, from then on steadily."""
        dice, crowd = random.Random(self.seed), self.crowd()
        rush = self.cells * self.setting.workers * self.setting.slots + self.waiting
        rush_s = rush / self.prompts_per_s
        for prompt in prompts(crowd.people(dice), self.most_output_tokens, dice, crowd.within):
            yield replace(prompt, at_s=max(0.0, prompt.at_s - rush_s))

    def times(self, part: float) -> Size:
        """So much of users, prompts, cells and places: cells stay as they are, there are fewer."""
        return replace(
            self,
            prompts_per_s=self.prompts_per_s * part,
            users=round(self.users * part),
            cells=round(self.cells * part),
            waiting=round(self.waiting * part),
        )


@dataclass
class Tally:
    """What came of it from the warm-up to the end, by tier."""

    asked: Counter[str] = field(default_factory=Counter)
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)
    wanted: Counter[str] = field(default_factory=Counter)
    served: Counter[str] = field(default_factory=Counter)
    waits_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    live: int = 0
    running: int = 0

    def add(self, other: Tally) -> None:
        """Both together."""
        for name in ("asked", "refused", "wanted", "served"):
            getattr(self, name).update(getattr(other, name))
        for tier, waits_s in other.waits_s.items():
            self.waits_s[tier] += waits_s
        self.live += other.live
        self.running += other.running

    @classmethod
    def of(cls, site: Site, size: Size) -> Tally:
        """What is counted of a simulation."""
        tally, pace = cls(site.asked, site.refused, site.wanted), size.setting.pace
        for run in site.runs:
            tally.served[run.tier] += round(run.served(size.seconds, pace) - run.served(size.warm_s, pace))
            if run.started_at_s is not None and run.prompt.at_s > size.warm_s:
                tally.waits_s[run.tier].append(run.wait_s)
            tally.live += run.ended_at_s is None
            tally.running += run.started_at_s is not None and run.ended_at_s is None
        return tally


def simulated(size: Size, url: str) -> Tally:
    """Let it all happen."""
    return played(size, size.trace(), url)


def played(size: Size, trace: Iterable[Prompt], url: str) -> Tally:
    """Let these prompts happen."""
    site = Site(size.plan(), url)
    site.feed(trace)
    for counts in (site.asked, site.refused, site.wanted):
        site.events.at(size.warm_s, counts.clear)
    site.events.run(size.seconds)
    return Tally.of(site, size)


def tallied(size: Size, urls: Sequence[str]) -> Tally:
    """`simulated` in a process for each Redis database: cells know nothing of each other."""
    parts = [replace(size.times(1 / len(urls)), seed=size.seed + number) for number in range(len(urls))]
    tally = Tally()
    with ProcessPoolExecutor(len(urls), get_context("fork")) as processes:
        for part in processes.map(simulated, parts, urls):
            tally.add(part)
    return tally


def report(size: Size, urls: Sequence[str]) -> None:
    """Print shares, waits and refusals by tier."""
    began_at = time.perf_counter()
    tally = tallied(size, urls)
    _describe(size, tally, time.perf_counter() - began_at)
    fair = shares(fair_by_tier(tally, size))
    for tier, share in shares(tally.served).items():
        waits_s = tally.waits_s[tier]
        print(
            f"{tier:5} {share:6.1%} of the tokens (fair by weight and demand: {fair[tier]:.1%}), wait median"
            f" {percentile(waits_s, 50):.2f} s, p95 {percentile(waits_s, 95):.2f} s, refused {_refusals(tally, tier)}"
        )


def fair_by_tier(tally: Tally, size: Size) -> dict[str, float]:
    """How the tokens served are divided by weight, where none gets more than its users ask for within limits."""
    demands = {tier: float(tally.wanted[tier]) for tier in size.shares}
    weights = {tier.slug: tier.weight for tier in size.plan().tiers}
    return filled(demands, weights, sum(tally.served.values()))


def _describe(size: Size, tally: Tally, took_s: float) -> None:
    print(
        f"{size.prompts_per_s:,.0f} prompts/s for {size.seconds:.0f} s after a rush that fills all slots and places,"
        f" of {size.users:,} users with Pareto rates (alpha {size.crowd().alpha}), seed {size.seed};"
        f" {size.cells * size.setting.workers:,} workers of {size.setting.slots} slots in {size.cells} cells;"
        f" counted from {size.warm_s:.0f} s on; at the end {tally.live:,} live streams, of which"
        f" {tally.running:,} run; simulated in {took_s:.0f} s"
    )


def _refusals(tally: Tally, tier: str) -> str:
    refused = {reason: count / tally.asked[tier] for (of, reason), count in tally.refused.items() if of == tier}
    reasons = ", ".join(f"{reason} {part:.1%}" for reason, part in sorted(refused.items()))
    return f"{sum(refused.values()):.1%} ({reasons})" if refused else "none"
