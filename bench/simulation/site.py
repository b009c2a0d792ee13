"""A product of many cells, and everybody's prompts on their way into it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from redis import Redis
from uuid6 import uuid7

from bench.simulation.broker import Broker
from bench.simulation.cell import Cell, Served, Setting, Waits
from bench.simulation.demand import Prompt
from bench.simulation.events import Events
from bench.simulation.gates import Gates, Refused
from bench.simulation.runs import Run
from bench.simulation.tiers import NOW
from scheduler.admission import output_cap
from scheduler.budgets import TokenBuckets
from scheduler.dispensable import DispensableRedis
from scheduler.limits import Limits
from scheduler.models import Model, Tier
from scheduler.prices import cost
from scheduler.room import Room
from scheduler.workers import Workers

MakeRoom = Callable[[Redis, str, str, Events], Waits]


def product_room(redis: Redis, model: str, tier: str, events: Events) -> Room:
    """The product's own, by the simulation's clock."""
    return Room(redis, model, tier, clock=events.now_ms)


@dataclass(frozen=True, slots=True)
class Plan:
    """A site: its tiers, its models (a cell each, all alike), and in which order a tier's runs wait."""

    tiers: Sequence[Tier]
    model: Model
    cells: int = 1
    setting: Setting = field(default_factory=Setting)
    make_room: MakeRoom = product_room


class Site:
    """Cells on one Redis database, which is emptied first, each with its share of the users."""

    def __init__(self, plan: Plan, url: str) -> None:
        self.events = Events()
        self.runs: list[Run] = []
        self.asked = Counter[str]()
        self.wanted = Counter[str]()  # tokens, by tier, within the users' own limits
        self.largest_cost = 0
        self.on_admit: list[Callable[[Run], None]] = []
        self.refused = Counter[tuple[str, str]]()
        self._plan, self._redis = plan, Redis.from_url(url)
        self._redis.flushdb()
        self._limits = {tier.slug: Limits.of(tier, None, NOW) for tier in plan.tiers}
        buckets = TokenBuckets(DispensableRedis(url), clock=self.events.now_ms)
        tiers = {tier.slug: tier for tier in plan.tiers}
        self._gates = [Gates(plan.model, tiers, self._limits, buckets) for _ in range(plan.cells)]
        self.cells = [self._cell(number) for number in range(plan.cells)]

    def _cell(self, number: int) -> Cell:
        slug, gates = f"{self._plan.model.slug}-{number}", self._gates[number]
        rooms = {
            tier.slug: self._plan.make_room(self._redis, slug, tier.slug, self.events) for tier in self._plan.tiers
        }
        weights = {tier.slug: float(tier.weight) for tier in self._plan.tiers}
        served = Served(slug, rooms, weights, Workers(self._redis, slug, self.events.now_ms))
        cell = Cell(served, self._plan.setting, Broker(self._redis), self.events)
        cell.on_start.append(gates.started)
        cell.on_end.append(gates.ended)
        return cell

    def feed(self, prompts: Iterable[Prompt]) -> None:
        """Let them be asked at their times, one drawn when the one before it is asked."""
        coming = iter(prompts)

        def ask_and_draw(prompt: Prompt) -> None:
            self.ask(prompt)
            draw()

        def draw() -> None:
            if (prompt := next(coming, None)) is not None:
                self.events.at(prompt.at_s, lambda: ask_and_draw(prompt))

        draw()

    def ask(self, prompt: Prompt) -> None:
        """Somebody asks; whoever is refused does not come back."""
        tier, number = prompt.person.tier, prompt.person.id.int % len(self.cells)
        cap = output_cap(self._plan.model, self._limits[tier], prompt.input_tokens, None)
        run = Run(uuid7(), prompt, cost(prompt.input_tokens, cap))
        self.asked[tier] += 1
        self.largest_cost = max(self.largest_cost, run.cost)
        try:
            self._gates[number].enter(run)
        except Refused as refused:
            self.refused[tier, str(refused)] += 1
            self.wanted[tier] += run.charge * (str(refused) == "queue")
            return
        self.wanted[tier] += run.charge
        self.runs.append(run)
        for tell in self.on_admit:
            tell(run)
        self.cells[number].admit(run)
