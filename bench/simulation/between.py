"""Two workers of six slots under three tiers, as bench/fairness.py has them on the real stack."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from uuid import uuid4

from bench.simulation.cell import Setting
from bench.simulation.demand import Person, Prompt
from bench.simulation.figures import percentile, shares
from bench.simulation.runs import Pace, Run
from bench.simulation.site import Plan, Site
from bench.simulation.tiers import a_model, tiers
from scheduler.routing import Warm

TIERS = ("pro", "plus", "free")
DEPTH = 30
UNLIMITED = {"concurrency": 10_000, "budget_tokens": 2_000_000_000, "shed_at_percent": 100, "queue_depth": 100_000}
# As in bench/fairness.py: 50 tokens a second of each sequence, and answers of about 80 tokens.
SETTING = Setting(pace=Pace(tokens_per_s=50), claim_s=0.02, finish_s=0.02)
MEDIAN_TOKENS, SIGMA, MOST_TOKENS = 80, 0.6, 400
PARTS = (0.1, 0.25, 0.5, 0.75, 0.9)
SETTLE_S = 30.0
PRO_USERS = (1, 2, 3, 4, 6)
THINK_S = 1.0  # between an answer and the same user's next question


# What was said before, in tokens: 0.5 s of the engine's time.
HISTORY = 4000


def warm_by_turns(run: Run) -> Warm:
    """Half of all runs have their history cached at either worker."""
    return Warm(str(run.id.int % SETTING.workers), HISTORY)


def warm_at_one(_run: Run) -> Warm:
    """All have it at one."""
    return Warm("0", HISTORY)


@dataclass(frozen=True, slots=True)
class Scene:
    """Which tiers always have runs waiting, and who asks in Pro beside: at random, or one question after the other."""

    pressing: Sequence[str] = TIERS
    pro_runs_per_s: float = 0.0
    pro_users: int = 0
    seconds: float = 600.0
    setting: Setting = SETTING
    dice: random.Random = field(default_factory=lambda: random.Random(3))

    def play(self, url: str) -> Site:
        """Let it happen."""
        model = a_model(queue_depth=100_000)
        site = Site(Plan(tiers(*TIERS, **UNLIMITED), model, 1, self.setting), url)
        people = {tier: Person(uuid4(), tier, 0.0, 0.0, 0.0) for tier in TIERS}
        ask = {tier: partial(self._ask, site, people[tier]) for tier in TIERS}

        def follow(run: Run) -> None:
            if run.tier in self.pressing:  # so many always wait
                site.events.after(0, ask[run.tier])

        site.cells[0].watch()
        site.cells[0].on_start.append(follow)
        for tier in self.pressing:
            for _ in range(DEPTH):
                ask[tier]()

        def think(run: Run) -> None:
            if run.tier == "pro" and self.pro_users:
                site.events.after(self.dice.expovariate(1 / THINK_S), ask["pro"])

        site.cells[0].on_end.append(think)
        for at_s in (*self._moments(), *(self.dice.random() for _ in range(self.pro_users))):
            site.events.at(at_s, ask["pro"])
        site.events.run(self.seconds)
        return site

    def _moments(self) -> Iterator[float]:
        at_s = 0.0
        while self.pro_runs_per_s and (at_s := at_s + self.dice.expovariate(self.pro_runs_per_s)) < self.seconds:
            yield at_s

    def _ask(self, site: Site, person: Person) -> None:
        tokens = min(MOST_TOKENS, max(1, round(MEDIAN_TOKENS * self.dice.lognormvariate(0, SIGMA))))
        site.ask(Prompt(site.events.now_s, person, 40, tokens))


def report(url: str) -> None:
    """Print what each scene came to."""
    saturated = ended(Scene().play(url))
    print(f"all tiers saturated, {len(saturated)} runs: {_shares(saturated)}")
    print(f"    longest stretch without a start of Free: {_longest_stretch(saturated)} starts")
    print(f"Pro idle: {_shares(ended(Scene(TIERS[1:]).play(url)))}")
    for title, warm in (("warm by turns at two workers", warm_by_turns), ("all warm at one worker", warm_at_one)):
        runs = ended(Scene(setting=replace(SETTING, warm=warm)).play(url))
        hits = sum(run.is_hit for run in runs) / len(runs)
        print(f"{title}: {len(runs)} runs, {hits:.0%} where they are warm; {_shares(runs)}")
    releases_per_s = len(saturated) / (Scene().seconds - SETTLE_S)
    for part in PARTS:
        scene = Scene(TIERS[1:], pro_runs_per_s=releases_per_s * part * 8 / 12)
        _print_waits(f"Pro asks at random for {part:.0%} of its share", scene, url)
    for users in PRO_USERS:
        _print_waits(f"{users} users of Pro ask one question after the other", Scene(TIERS[1:], pro_users=users), url)


def _print_waits(title: str, scene: Scene, url: str) -> None:
    """In mean times from one slot's release to the next."""
    runs = ended(scene.play(url))
    release_s = (scene.seconds - SETTLE_S) / len(runs)
    waits = [run.wait_s / release_s for run in runs if run.tier == "pro"]
    print(
        f"{title}: {len(waits)} of its runs wait {percentile(waits, 50):.1f} slot releases (median),"
        f" {percentile(waits, 95):.1f} (p95); {_shares(runs)}"
    )


def ended(site: Site) -> list[Run]:
    """Those that ended once all had settled, in the order of their starts."""
    ended = [run for run in site.runs if run.ended_at_s is not None and run.ended_at_s > SETTLE_S]
    return sorted(ended, key=lambda run: run.started_at_s or 0.0)


def _shares(runs: Sequence[Run]) -> str:
    tokens = Counter[str]()
    for run in runs:
        tokens[run.tier] += run.charge
    return ", ".join(f"{tier} {share:.1%}" for tier, share in sorted(shares(tokens).items(), reverse=True))


def _longest_stretch(runs: Sequence[Run]) -> int:
    """The most starts in a row that were not Free's."""
    return max(len(list(others)) for is_free, others in groupby(runs, lambda run: run.tier == "free") if not is_free)
