"""What happens between a run's admission and its end, on one model's rooms, queues and workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol
from uuid import UUID

from bench.simulation.broker import Broker
from bench.simulation.events import Events
from bench.simulation.runs import Pace, Run
from bench.simulation.worker import Worker
from inference.queues import sticky_name, tier_queue
from scheduler.room import Correction, Departure, Newcomer, Release, queue_name
from scheduler.routing import Report, Warm
from scheduler.workers import Workers

# Between two looks of the reaper, and two reports of an idle worker.
PERIOD_S = 2.0


class Waits(Protocol):
    """Where admitted runs wait: the product's `Room`, or another order to compare it with."""

    def release(
        self,
        lookahead: int,
        newcomers: Sequence[Newcomer] = (),
        departed: Sequence[UUID] = (),
        corrections: Sequence[Correction] = (),
        report: Report | None = None,
    ) -> Release:
        """As `Room.release`."""


@dataclass(frozen=True, slots=True)
class Setting:
    """How large a cell is and how fast; what a run costs its slot beside the engine's time."""

    workers: int = 2
    slots: int = 6
    lookahead: int = 8
    pace: Pace = field(default_factory=Pace)
    claim_s: float = 0.01  # from the queue to the engine: by then the next is released
    finish_s: float = 0.01  # from the last token until the slot takes another run
    warm: Callable[[Run], Warm | None] = lambda _run: None  # workers are named by their numbers


@dataclass(frozen=True, slots=True)
class Served:
    """A served model's name, its rooms, the weights of their tiers, and what its workers tell."""

    slug: str
    rooms: Mapping[str, Waits]
    weights: Mapping[str, float]
    kept: Workers


class Cell:
    """The way of runs through the queues and slots of one model."""

    def __init__(self, served: Served, setting: Setting, broker: Broker, events: Events) -> None:
        self._rooms, self._setting, self._broker, self._events = served.rooms, setting, broker, events
        self._queues = {tier: queue_name(served.slug, tier) for tier in served.rooms}
        weights = {self._queues[tier]: weight for tier, weight in served.weights.items()}
        self._kept, self._kept_in = served.kept, dict[UUID, str]()
        self._prefill_us = 1e6 / setting.pace.input_tokens_per_s
        clock = partial(getattr, events, "now_s")
        self.workers = [Worker(str(number), setting.slots, weights, clock) for number in range(setting.workers)]
        # In the order in which they began to wait for a message, as Redis serves them.
        self._blocked = dict.fromkeys(self.workers)
        self._waiting: dict[str, Run] = {}
        self.on_release: list[Callable[[Run], None]] = []
        self.on_start: list[Callable[[Run], None]] = []
        self.on_end: list[Callable[[Run], None]] = []

    def admit(self, run: Run) -> None:
        """Let a run wait."""
        self._waiting[str(run.id)] = run
        run.warm = self._setting.warm(run)
        self._release(run.tier, [Newcomer(run.id, run.prompt.person.id, run.cost, warm=run.warm)])

    def watch(self) -> None:
        """Begin to look after sticky queues, as workers and the reaper do."""
        for worker in self.workers:
            self._kept.tell(worker.report(self._prefill_us))
        self._make_common(self._kept.sweep())
        self._events.after(PERIOD_S, self.watch)

    def _release(
        self,
        tier: str,
        newcomers: Sequence[Newcomer] = (),
        departed: Sequence[UUID] = (),
        corrections: Sequence[Correction] = (),
        worker: Worker | None = None,
    ) -> list[str]:
        """Tell a room, and send whom it lets go; returns the queues for which nothing waits."""
        report = worker.report(self._prefill_us) if worker else None
        release = self._rooms[tier].release(self._setting.lookahead, newcomers, departed, corrections, report)
        for departure in release.taken:
            for tell in self.on_release:
                tell(self._waiting[str(departure.run_id)])
        self._make_common(release.late)
        self._send(release.taken, self._queues[tier])
        return [queue for tier, queue in self._queues.items() if not release.waiting.get(tier)]

    def _send(self, departures: Sequence[Departure], shared: str) -> None:
        common = []
        for departure in departures:
            if departure.route and departure.route.is_sticky:
                self._keep(departure.run_id, shared, departure.route.worker)
            else:
                common.append(str(departure.run_id))
        if common:
            self._broker.send(shared, common)
            self._wake(len(common))

    def _keep(self, run_id: UUID, shared: str, name: str) -> None:
        self._kept_in[run_id] = sticky_name(shared, name)
        self._broker.send(self._kept_in[run_id], [str(run_id)])
        worker = self.workers[int(name)]
        if worker in self._blocked:
            del self._blocked[worker]
            self._pull(worker)

    def _make_common(self, run_ids: Sequence[UUID]) -> None:
        for run_id in run_ids:
            queue = self._kept_in.pop(run_id)
            self._broker.moved(queue, tier_queue(queue))
        self._wake(len(run_ids))

    def _wake(self, messages: int) -> None:
        """Those who wait for a message take one each."""
        for worker in list(self._blocked)[:messages]:
            del self._blocked[worker]
            self._pull(worker)

    def _pull(self, worker: Worker) -> None:
        """Take what the worker's slots hold; wait for a message while there is none."""
        while worker.free_slots:
            message = self._broker.pull(worker.queues())
            if message is None:
                self._blocked[worker] = None
                return
            queue, run_id = message
            run = self._waiting.pop(run_id)
            run.worker = worker.name
            worker.take(tier_queue(queue), run.cost)
            self._events.after(self._setting.claim_s, partial(self._begin, run, worker))

    def _begin(self, run: Run, worker: Worker) -> None:
        run.started_at_s = self._events.now_s
        for tell in self.on_start:
            tell(run)
        worker.order.rest(self._release(run.tier, departed=[run.id], worker=worker))
        service_s = self._setting.pace.service_s(run.prompt) + self._setting.pace.history_s(run)
        self._events.after(service_s, partial(self._end, run))
        self._events.after(service_s + self._setting.finish_s, partial(self._leave, run, worker))

    def _end(self, run: Run) -> None:
        run.ended_at_s = self._events.now_s
        for tell in self.on_end:
            tell(run)

    def _leave(self, run: Run, worker: Worker) -> None:
        worker.let_go(self._queues[run.tier], run.cost, run.charge)
        corrections = [Correction(run.prompt.person.id, run.cost, run.charge)]
        worker.order.rest(self._release(run.tier, corrections=corrections, worker=worker))
        self._pull(worker)
