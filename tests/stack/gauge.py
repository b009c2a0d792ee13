"""What the processes of a stack hold: the worker's pool and engine, connections, queues."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psutil
from celery import Celery
from redis.asyncio import Redis

from tests.stack.stack import Process, Stack
from tests.subscriptions import subscribers

PATIENCE_S = 60
# Bindings, and what stays when nobody waits.
MEASURES = ("_kombu.", "drain:", "counters:", "owners:", "workers:")


@dataclass(frozen=True, slots=True)
class Load:
    """What `celery inspect stats` says of a worker: runs in hand, its loop's tasks, what the engine runs."""

    in_hand: int
    loop_tasks: int
    running: int
    waiting: int

    @property
    def is_idle(self) -> bool:
        """Whether no run is anywhere in the worker."""
        return not (self.in_hand or self.running or self.waiting)


@dataclass(frozen=True, slots=True)
class Held:
    """What would grow if a connection leaked."""

    subscriptions: int
    open_files: int


@contextmanager
def gauge_of(stack: Stack) -> Iterator[Gauge]:
    """A gauge of the stack."""
    with Celery(broker=stack.broker_url) as app:
        yield Gauge(stack, app)


class Gauge:
    """Reads a stack's gauges; a reading of the worker's takes some milliseconds."""

    def __init__(self, stack: Stack, app: Celery) -> None:
        self._stack = stack
        self._inspect = app.control.inspect(timeout=PATIENCE_S, limit=1)

    async def load(self) -> Load:
        """The worker's load now."""
        return await asyncio.to_thread(self._load)

    def _load(self) -> Load:
        replies = self._inspect.stats() or {}
        pool: dict[str, Any] = next(iter(replies.values()))["pool"]
        engine = pool["engine"]
        return Load(pool["in-hand"], pool["loop-tasks"], int(engine["running"]), int(engine["waiting"]))

    async def seconds_until_engine_is_empty(self) -> float:
        """How long it takes until the engine runs nothing. Raises `TimeoutError`."""
        began_at = time.monotonic()
        async with asyncio.timeout(PATIENCE_S):
            while (load := await self.load()).running or load.waiting:
                pass
        return time.monotonic() - began_at

    async def settle(self) -> None:
        """Return when no run is anywhere in the worker. Raises `TimeoutError`."""
        await self.reach(lambda load: load.is_idle)

    async def reach(self, is_reached: Callable[[Load], bool]) -> None:
        """Return when the worker's load is so. Raises `TimeoutError`."""
        async with asyncio.timeout(PATIENCE_S):
            while not is_reached(await self.load()):  # noqa: ASYNC110  (nobody to wake us)
                await asyncio.sleep(0.05)

    async def held(self, *webs: Process) -> Held:
        """What the worker and web processes hold."""
        async with Redis.from_url(self._stack.streams_url) as redis:
            subscriptions = len(await subscribers(redis))
        return Held(
            subscriptions=subscriptions,
            open_files=sum(psutil.Process(process.pid).num_fds() for process in (self._stack.worker, *webs)),
        )

    async def queued(self) -> set[str]:
        """What waits: keys of rooms, queues and unacknowledged messages, and runs and users in a room's books."""
        async with Redis.from_url(self._stack.broker_url) as redis:
            keys = {key.decode() async for key in redis.scan_iter()}
            books: list[list[Any]] = [await redis.hkeys(key) for key in keys if key.startswith("owners:")]
        listed = {field.decode() for book in books for field in book} - {"now"}
        return listed | {key for key in keys if not key.startswith(MEASURES)}
