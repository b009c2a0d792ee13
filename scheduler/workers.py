"""What a model's workers tell of themselves beside their releases, and what becomes of runs kept for them in vain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast
from uuid import UUID

from redis import Redis

from scheduler.room import DRAIN, LUA, ROUTE, drain_key, holders_key, queue_name, sticky_key, workers_key
from scheduler.routing import Report

TELL = DRAIN + ROUTE + (LUA / "tell.lua").read_text()
LEAVE = DRAIN + ROUTE + (LUA / "leave.lua").read_text()
SWEEP = DRAIN + ROUTE + (LUA / "sweep.lua").read_text()


class Workers:
    """One model's workers, in the broker's Redis. Each call is one round trip.

    `clock` tells milliseconds since the epoch; without one it is Redis's own time.
    """

    def __init__(self, redis: Redis, model: str, clock: Callable[[], int] | None = None) -> None:
        self._redis, self._model, self._clock = redis, model, clock
        self._tell = redis.register_script(TELL)
        self._leave = redis.register_script(LEAVE)
        self._sweep = redis.register_script(SWEEP)

    def tell(self, report: Report) -> None:
        """A worker is there, and does so."""
        self._tell(keys=[workers_key(self._model)], args=cast(Any, [self._now_ms, *report.told]))

    def leave(self, worker: str) -> None:
        """A worker takes no more: nothing is kept for it from now on."""
        self._leave(keys=[workers_key(self._model)], args=cast(Any, [self._now_ms, worker]))

    def sweep(self) -> list[UUID]:
        """Let go to all what is kept for a worker that is silent, or for too long; tells these runs."""
        prefixes = [name(self._model, "") for name in (queue_name, sticky_key, holders_key)]
        keys = [drain_key(self._model), workers_key(self._model)]
        moved = cast(list[bytes], self._sweep(keys=keys, args=cast(Any, [self._now_ms, *prefixes])))
        return [UUID(run_id.decode()) for run_id in moved]

    @property
    def _now_ms(self) -> int | str:
        return self._clock() if self._clock else ""
