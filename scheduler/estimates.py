"""How long runs will wait, from how fast their model's queues have drained while others waited."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self, cast

from scheduler.dispensable import DispensableRedis
from scheduler.fairness import background_weight
from scheduler.room import BACKGROUND, drain_key

# Until something was measured: about a batch of a full engine.
UNMEASURED_RETRY_S = 5
WAITING, CHARGE, WEIGHT, FLOW, FLOW_AT = b"waiting:", b"charge:", b"weight:", b"flow:", b"flow_at:"
# As in `lua/drain.lua`.
TIME_CONSTANT_S = 60.0
# Of a run: by so little the next guess is another.
CLOSE = 0.1

# What Redis answers to TIME: seconds and microseconds.
Clock = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Drain:
    """What left a model's queues within some busy time; nothing was measured while `runs` is 0.

    `squares` are those of the times between one departure and the next, in ms. `overdue_ms` is for how much longer
    than usual none has left now, though some wait. By tier: `waiting` is how many, `weights` their shares beside each
    other, `charges` how many tokens a run comes to, `flows` how many runs leave a second of late.
    """

    runs: float = 0.0
    busy_ms: float = 0.0
    squares: float = 0.0
    overdue_ms: float = 0.0
    waiting: Mapping[str, int] = field(default_factory=dict)
    weights: Mapping[str, int] = field(default_factory=dict)
    charges: Mapping[str, float] = field(default_factory=dict)
    flows: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def read(cls, stored: Mapping[bytes, bytes], clock: Clock) -> Self:
        """From the hash that `lua/drain.lua` keeps, and the same server's TIME."""
        runs, busy_ms, squares, since_ms = (
            float(stored.get(name, 0)) for name in (b"runs", b"busy_ms", b"squares", b"since")
        )
        silence_ms = clock[0] * 1000 + clock[1] / 1000 - since_ms if since_ms else 0.0
        usual_ms = squares / busy_ms if busy_ms else 0.0
        waiting, weights, charges = (_by_tier(stored, prefix) for prefix in (WAITING, WEIGHT, CHARGE))
        return cls(
            *(runs, busy_ms, squares, max(0.0, silence_ms - usual_ms)),
            waiting={tier: int(count) for tier, count in waiting.items()},
            weights={tier: int(weight) for tier, weight in weights.items()},
            charges={tier: float(charge) for tier, charge in charges.items()},
            flows=_flows(stored, clock[0] + clock[1] / 1e6),
        )

    def wait_s(self, ahead: float) -> float | None:
        """Seconds until a run leaves that `ahead` others leave before; None while nothing was measured.

        next + ahead * interval + overdue, where interval = busy_ms / runs, and next = squares / (2 * busy_ms) is how
        long it takes from any moment until a run leaves (the mean residual time of a renewal process): half of the
        usual silence, squares / busy_ms, in which a moment lies. So with a burst each 5 s it is 2.5 s. Overdue is the
        present silence beyond the usual: an outage is guessed to last as long again as it has lasted.
        """
        if not self.runs:
            return None
        next_ms = self.squares / (2 * self.busy_ms)
        return (next_ms + ahead * self.busy_ms / self.runs + self.overdue_ms) / 1000

    def ahead(self, tier: str, place: int) -> int:
        """How many runs leave before the one at a place of its tier, counted from 1.

        Those before it, and from each other tier as many as its share lets leave meanwhile, or as wait there and will
        have come. Who comes later to its own tier, with a lower counter, may add to them.
        """
        others = [self._competing(other, tier, place) for other in self.waiting if other != tier]
        ahead, before = place - 1.0, -1.0
        while ahead - before > CLOSE:
            before, wait_s = ahead, self.wait_s(ahead) or 0.0
            ahead = place - 1 + sum(min(share, waiting + flow * wait_s) for share, waiting, flow in others)
        return round(ahead)

    def _competing(self, other: str, tier: str, place: int) -> tuple[int, int, float]:
        """Of another tier: how many its share lets go before a place, how many wait, how many leave a second."""
        share = math.ceil(round(place * self._beside(other, tier), 6))
        return share, self.waiting[other], self.flows.get(other, 0.0)

    def _beside(self, other: str, tier: str) -> float:
        """How many runs of another tier leave for each of this one, while both wait: by the tokens of their shares."""
        by_weight = self._weight(other) / self._weight(tier)
        charge, other_charge = self.charges.get(tier), self.charges.get(other)
        return by_weight * charge / other_charge if charge and other_charge else by_weight

    def _weight(self, tier: str) -> float:
        return background_weight(self.weights) if tier == BACKGROUND else self.weights.get(tier, 1)

    def eta_s(self, tier: str, place: int) -> int | None:
        """`wait_s` of the run at that place of its tier, in whole seconds, at least 1."""
        wait_s = self.wait_s(self.ahead(tier, place))
        return None if wait_s is None else max(1, round(wait_s))

    def retry_after_s(self, ahead: int) -> int:
        """`wait_s` rounded up, at least 1; a guess while nothing was measured."""
        wait_s = self.wait_s(ahead)
        return UNMEASURED_RETRY_S if wait_s is None else max(1, math.ceil(wait_s))


class Estimates:
    """Reads drains from the broker's Redis, in one round trip each. While it is away nothing is known.

    `clock` tells milliseconds since the epoch; without one it is Redis's own time.
    """

    def __init__(self, redis: DispensableRedis, clock: Callable[[], int] | None = None) -> None:
        self._redis = redis
        self._clock = clock
        self._client = redis.client

    def drain(self, model: str) -> Drain:
        """Of a model's queues."""
        return self._redis.ask(lambda: self._read(model), otherwise=Drain())

    def note_weights(self, model: str, weights: Mapping[str, int]) -> None:
        """The tiers' weights by which the model's workers take from its queues: whoever reads the drain has them."""
        fields: dict[Any, Any] = {f"weight:{tier}": weight for tier, weight in weights.items()}
        self._redis.ask(lambda: bool(self._client.hset(drain_key(model), mapping=fields)), otherwise=False)

    def _read(self, model: str) -> Drain:
        with self._client.pipeline(transaction=False) as pipe:
            pipe.hgetall(drain_key(model))
            pipe.time()
            stored, time = pipe.execute()
        return Drain.read(stored, _as_time(self._clock()) if self._clock else cast(Clock, time))


def _as_time(now_ms: int) -> Clock:
    return now_ms // 1000, now_ms % 1000 * 1000


def _flows(stored: Mapping[bytes, bytes], now_s: float) -> dict[str, float]:
    at_ms, counted = _by_tier(stored, FLOW_AT), _by_tier(stored, FLOW)
    ages_s = {tier: max(0.0, now_s - float(at) / 1000) for tier, at in at_ms.items()}
    return {
        tier: float(runs) * math.exp(-ages_s.get(tier, 0.0) / TIME_CONSTANT_S) / TIME_CONSTANT_S
        for tier, runs in counted.items()
    }


def _by_tier(stored: Mapping[bytes, bytes], prefix: bytes) -> dict[str, bytes]:
    return {name.removeprefix(prefix).decode(): value for name, value in stored.items() if name.startswith(prefix)}
