"""How far apart two users come in served tokens while both have runs waiting."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from uuid import UUID

from bench.simulation.runs import Pace, Run
from bench.simulation.site import Site


def bound(largest_cost: int, concurrency: int) -> int:
    """The most that the room lets it be, in tokens: 2 * k * U; docs/fairness.md derives it."""
    return 2 * concurrency * largest_cost


@dataclass(frozen=True, slots=True)
class Moment:
    """What each user had been served by a moment, and who had runs waiting in the room."""

    served: Mapping[UUID, float]
    backlogged: frozenset[UUID]


class Ledger:
    """Samples users' service and backlog."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._done = defaultdict[UUID, float](float)
        self._running = set[Run]()
        self._waiting = defaultdict[UUID, int](int)
        self.moments: list[Moment] = []

    def watch(self, site: Site) -> None:
        """Be told of what happens to its runs."""
        site.on_admit.append(self.admitted)
        for cell in site.cells:
            cell.on_release.append(self.released)
            cell.on_start.append(self.started)
            cell.on_end.append(self.ended)

    def admitted(self, run: Run) -> None:
        """One more of its user's waits in the room."""
        self._waiting[run.prompt.person.id] += 1

    def released(self, run: Run) -> None:
        """One fewer waits in the room."""
        self._waiting[run.prompt.person.id] -= 1

    def started(self, run: Run) -> None:
        """A worker has it."""
        self._running.add(run)

    def ended(self, run: Run) -> None:
        """It has been served whole."""
        self._running.discard(run)
        self._done[run.prompt.person.id] += run.charge

    def sample(self, now_s: float) -> None:
        """Note how it stands."""
        served = dict(self._done)
        for run in self._running:
            user = run.prompt.person.id
            served[user] = served.get(user, 0.0) + run.served(now_s, self._pace)
        self.moments.append(Moment(served, frozenset(user for user, count in self._waiting.items() if count)))

    def largest_gap(self) -> float:
        """Over every pair, and every interval in which both had runs waiting throughout."""
        users = {user for moment in self.moments for user in moment.backlogged}
        return max((_gap(self.moments, *pair) for pair in combinations(sorted(users), 2)), default=0.0)


def _gap(moments: Sequence[Moment], one: UUID, other: UUID) -> float:
    """The range of the difference within each stretch in which both are backlogged; the largest of these ranges."""
    largest, low, high = 0.0, float("inf"), float("-inf")
    for moment in moments:
        if not {one, other} <= moment.backlogged:
            low, high = float("inf"), float("-inf")
            continue
        difference = moment.served.get(one, 0.0) - moment.served.get(other, 0.0)
        low, high = min(low, difference), max(high, difference)
        largest = max(largest, high - low)
    return largest
