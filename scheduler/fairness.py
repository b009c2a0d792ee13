"""The order between tiers: each gets its weight's share of the tokens while it has runs waiting."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass

# Of the lightest tier's weight: behind whoever waits for an answer, and never not at all.
BACKGROUND_PART = 0.1
# About as many ended runs say what part of its cost a run comes to.
REMEMBERED_RUNS = 64


def background_weight(tiers: Mapping[str, float]) -> float:
    """Of the runs that nobody waits for, beside these weights."""
    return BACKGROUND_PART * min(tiers.values(), default=1)


@dataclass(slots=True)
class _Share:
    """A name's part: what its ended runs had, by its weight, and what is expected of those that run.

    `charges / costs` is what part of its cost a run came to, of late. The whole cost is no guide while many run: their
    tokens would seem spent, and be given back as their slots go to another name, ahead of which this one then is.
    """

    weight: float
    ended: float
    running: int = 0
    costs: float = 1.0
    charges: float = 1.0

    @property
    def tag(self) -> float:
        """What the name has had so far, by its weight."""
        return self.ended + self._expected / self.weight

    @property
    def _expected(self) -> float:
        return self.running * self.charges / self.costs

    def weigh(self, weight: float) -> None:
        """Another weight holds from the present tag on."""
        tag, self.weight = self.tag, weight
        self.ended += tag - self.tag

    def learn(self, cost: int, charge: int) -> None:
        """What a run came to, beside those before it."""
        kept = 1 - 1 / REMEMBERED_RUNS
        self.costs, self.charges = self.costs * kept + cost, self.charges * kept + charge


class FairOrder:
    """Self-clocked fair queueing over names, such as those of queues, by tokens; callable from several threads.

    A run is charged at its start what its cost usually comes to, and at its end what it came to. Whoever's tag would be
    smallest behind another run, the finish tag, goes next; the largest that has gone is the virtual time. A name that
    rested comes back a round below it, hence before the others. Otherwise a name that never has more than one run
    waiting would come back all the time, on every worker, and each time wait for its turn anew. Knows neither clock nor
    Redis. Golestani, "A Self-Clocked Fair Queueing Scheme", INFOCOM 1994; that whoever comes is next: Goyal, Vin,
    Cheng, "Start-time Fair Queueing", SIGCOMM 1996.

    Those that are `beside` count as waiting for nobody's round: it would be as long as their weight is small, and so
    much a tier that comes back would be ahead of the others.
    """

    def __init__(self, beside: Callable[[str], bool] = lambda _name: False) -> None:
        self._is_beside = beside
        self._shares: dict[str, _Share] = {}
        self._resting: set[str] = set()
        self._now = 0.0
        self._usual_charge = 0.0
        self._lock = threading.Lock()

    def weigh(self, weights: Mapping[str, float]) -> None:
        """The names that exist now, and the weights that hold from now on; a new name starts at the virtual time."""
        with self._lock:
            known, now = self._shares, self._now
            self._shares = {name: known.get(name) or _Share(weight, now) for name, weight in weights.items()}
            for name, share in self._shares.items():
                share.weigh(weights[name])

    def ranked(self) -> list[str]:
        """All names, the one that is to go next first."""
        with self._lock:
            lightest = self._lightest_beside(self._resting)
            return sorted(self._shares, key=lambda name: (self._finish(name, lightest), name not in self._resting))

    def start(self, name: str, cost: int) -> None:
        """A run begins that may come to `cost` tokens; a name that is not known is not counted."""
        with self._lock:
            if share := self._shares.get(name):
                lightest = self._lightest_beside(self._resting)
                self._wake(name, lightest)
                self._now = max(self._now, self._finish(name, lightest))
                share.running += cost

    def correct(self, name: str, cost: int, charge: int) -> None:
        """A run that began with that cost, 0 where it was not known, is over: it came to `charge` tokens."""
        with self._lock:
            if share := self._shares.get(name):
                share.running -= cost
                share.ended += charge / share.weight
                if cost:
                    share.learn(cost, charge)
                    self._usual_charge += (charge - self._usual_charge) / REMEMBERED_RUNS

    def rest(self, names: Iterable[str]) -> None:
        """Nothing waits for these, hence what they leave to others is not kept for them; for the others something does.

        Who begins to wait has its tag from then on: if it went on up with the virtual time, a light weight would be
        behind a heavy one for ever.
        """
        with self._lock:
            resting = self._shares.keys() & set(names)
            lightest = self._lightest_beside(resting)
            for name in self._resting - resting:
                self._wake(name, lightest)
            self._resting = resting

    def _wake(self, name: str, lightest: float) -> None:
        if share := self._shares.get(name):
            share.ended += self._tag(name, lightest) - share.tag
        self._resting.discard(name)

    def _finish(self, name: str, lightest: float) -> float:
        return self._tag(name, lightest) + self._usual_charge / self._shares[name].weight

    def _tag(self, name: str, lightest: float) -> float:
        """As it is, or for a name that rests a round below the virtual time: one run of the lightest, or of its own."""
        share = self._shares[name]
        if name not in self._resting:
            return share.tag
        return max(share.tag, self._now - self._usual_charge / min(share.weight, lightest))

    def _lightest_beside(self, resting: Set[str]) -> float:
        """The smallest weight of those for which something waits."""
        waiting = (name for name in self._shares.keys() - resting if not self._is_beside(name))
        return min((self._shares[name].weight for name in waiting), default=math.inf)
