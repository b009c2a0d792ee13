"""27 users of one tier who ask for very unequal amounts: the room's order beside first come first served and turns."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from uuid import UUID

from redis import Redis

from bench.simulation import gap
from bench.simulation.cell import Setting, Waits
from bench.simulation.demand import Crowd, Person, Prompt, prompts
from bench.simulation.events import Events
from bench.simulation.figures import percentile
from bench.simulation.orders import FirstCome, Order, PlainRoom, RoundRobin
from bench.simulation.site import MakeRoom, Plan, Site, product_room
from bench.simulation.tiers import a_model, tiers

USERS = 27
# More unequal than a crowd is: the busiest asks for most of all.
CROWD = Crowd(USERS, prompts_per_s=30, shares={"plus": 1}, alpha=0.8, between=1.2)


@dataclass(frozen=True, slots=True)
class Trial:
    """For how long, who asks, how many runs each may have at once, and with which seed."""

    seconds: float = 1200
    crowd: Crowd = CROWD
    concurrency: int = 4
    sample_s: float = 0.25
    seed: int = 27
    setting: Setting = field(default_factory=Setting)

    def people(self) -> list[Person]:
        """The users, the busiest first."""
        return sorted(self.crowd.people(random.Random(self.seed)), key=lambda person: -person.prompts_per_s)

    def modest(self) -> list[Person]:
        """Those of the users who ask for less than half of an equal part of what the workers generate."""
        found, setting = self.people(), self.setting
        part = setting.workers * setting.slots * setting.pace.tokens_per_s / len(found)
        return [person for person in found if person.tokens_per_s < part / 2]

    def prompts(self, most_output_tokens: int) -> Iterator[Prompt]:
        """What they ask within the time."""
        endless = prompts(self.people(), most_output_tokens, random.Random(self.seed), self.crowd.within)
        return takewhile(lambda prompt: prompt.at_s < self.seconds, endless)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an order came to."""

    gap_tokens: float
    bound_tokens: int
    tokens_per_s: float
    output_tokens_per_s: float
    served: Mapping[UUID, float]
    waits_s: Mapping[UUID, Sequence[float]]

    def p95_wait_s(self, users: Sequence[Person]) -> float:
        """Of all runs of these users that started."""
        return percentile([wait for user in users for wait in self.waits_s.get(user.id, ())], 95)


def plain(order: type[Order]) -> MakeRoom:
    """Rooms in that order."""

    def make(redis: Redis, model: str, tier: str, _events: Events) -> Waits:
        return PlainRoom(redis, model, tier, order())

    return make


ROOM, FIRST_COME = "virtual token counter", "first come, first served"
ORDERS: Mapping[str, MakeRoom] = {
    ROOM: product_room,
    FIRST_COME: plain(FirstCome),
    "round robin": plain(RoundRobin),
}


def outcome(trial: Trial, make_room: MakeRoom, url: str) -> Outcome:
    """Let an order serve the trial's prompts."""
    [plus] = tiers("plus", concurrency=trial.concurrency)
    site = Site(Plan([plus], a_model(), 1, trial.setting, make_room), url)
    ledger = gap.Ledger(trial.setting.pace)
    ledger.watch(site)
    for number in range(round(trial.seconds / trial.sample_s)):
        when_s = number * trial.sample_s
        site.events.at(when_s, partial(ledger.sample, when_s))
    site.feed(trial.prompts(plus.max_output_tokens))
    site.events.run(trial.seconds)
    return _read(site, ledger, trial)


def _read(site: Site, ledger: gap.Ledger, trial: Trial) -> Outcome:
    served, waits_s = defaultdict[UUID, float](float), defaultdict[UUID, list[float]](list)
    for run in site.runs:
        served[run.prompt.person.id] += run.served(trial.seconds, trial.setting.pace)
        if run.started_at_s is not None:
            waits_s[run.prompt.person.id].append(run.wait_s)
    bound = gap.bound(site.largest_cost, trial.concurrency)
    output = sum(run.served_output(trial.seconds, trial.setting.pace) for run in site.runs)
    return Outcome(
        ledger.largest_gap(), bound, sum(served.values()) / trial.seconds, output / trial.seconds, served, waits_s
    )


def report(trial: Trial, url: str) -> None:
    """Print each order's figures on the same prompts."""
    crowd = trial.people()
    modest = trial.modest()
    _describe(trial, crowd, modest)
    for name, make_room in ORDERS.items():
        found = outcome(trial, make_room, url)
        print(
            f"{name:25} largest gap {found.gap_tokens:7,.0f} tokens (bound {found.bound_tokens:,}),"
            f" {found.output_tokens_per_s:.1f} tokens/s ({found.tokens_per_s:.1f} with those of prompts),"
            f" p95 wait {found.p95_wait_s(modest):.1f} s of the modest, {found.p95_wait_s(crowd):.1f} s of all"
        )


def _describe(trial: Trial, crowd: Sequence[Person], modest: Sequence[Person]) -> None:
    rates = [person.prompts_per_s for person in crowd]
    lengths = sorted(person.output_tokens for person in crowd)
    print(
        f"{USERS} users, {trial.seconds:.0f} s, seed {trial.seed}, {trial.concurrency} live runs each: Pareto rates"
        f" (alpha {trial.crowd.alpha}), the busiest asks {rates[0] / sum(rates):.0%} of all {sum(rates):.0f} prompts/s,"
        f" the least busy {rates[-1] / sum(rates):.1%}; median answers of {lengths[0]:.0f} to {lengths[-1]:.0f} tokens;"
        f" {len(modest)} are modest: they ask for less than half of an equal part of what is generated"
    )
