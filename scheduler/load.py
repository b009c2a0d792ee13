"""How full a model's workers are: by what they report of themselves, and by how many runs wait for them."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

from inference import reports
from inference.reports import Report, Seen
from scheduler.dispensable import DispensableRedis, shared

# Workers report every two seconds. To read 64 reports takes 15 ms of CPU time and 180 KB, more than a whole question.
AGAIN_S = 1.0


@dataclass(frozen=True, slots=True)
class Load:
    """What the workers of all models report that have not gone silent; nothing while the streams' Redis is away."""

    reports: Sequence[Report] = ()

    @classmethod
    def of(cls, seen: Iterable[Seen]) -> Self:
        """Of reports those that say something of now."""
        return cls([one.report for one in seen if one.is_fresh])

    def is_served(self, model: str) -> bool:
        """Whether a worker of the model reports."""
        return bool(self._slots(model))

    def percent(self, model: str, waiting: int) -> int | None:
        """Of all its slots those taken, together with who waits: 100 is full, 200 that as many wait as run.

        A worker is taken to the part of its slots or that of its KV cache, whichever is the greater. None where no
        worker reports. Weakness: reports are up to three seconds old, what waits is of now.
        """
        slots = self._slots(model)
        if not slots:
            return None
        taken = sum(_taken(report) for report in self.reports if report.model == model)
        return int(100 * (taken + waiting) / slots)

    def _slots(self, model: str) -> float:
        return sum(_slots(report) for report in self.reports if report.model == model)


class Watched:
    """The load as this process knows it. One round trip, once a second at most."""

    def __init__(self, redis: DispensableRedis) -> None:
        self._redis = redis
        self._load = Load()
        self._read_at = -math.inf

    def now(self) -> Load:
        """As it was a second ago at most."""
        if time.monotonic() > self._read_at + AGAIN_S:
            self._load = Load.of(self._redis.ask(lambda: reports.read(self._redis.client), otherwise=[]))
            self._read_at = time.monotonic()
        return self._load


@lru_cache
def watched(url: str) -> Watched:
    """The process's own, of this streams' Redis."""
    return Watched(shared(url))


def _slots(report: Report) -> float:
    return report.engine.get("slots", 0)


def _taken(report: Report) -> float:
    in_hand = sum(of_tier.in_hand for of_tier in report.tiers.values())
    return max(in_hand, _slots(report) * report.engine.get("kv_cache_usage", 0.0))
