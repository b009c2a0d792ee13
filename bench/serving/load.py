"""`python -m bench.serving.load`: the load generator, a process of its own; a job goes in, an outcome comes out.

Requests are sent when they are due, however the server does. To show that it is not what limits a figure, each outcome
says which share of a core the generator took, and the same jobs are run against an application with nothing behind it.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import json
import resource
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from typing import cast
from uuid import UUID

import uvloop

from bench.serving.job import Job, Outcome, Sample
from bench.serving.surfaces import SURFACES, Refused, now
from bench.serving.wire import Wire
from launcher import kernel

SEEN_WITHIN_MS = 10_000


async def carry_out(job: Job) -> Outcome:
    """Send all of the job's requests, and return when each has ended, one way or another."""
    async with _watcher(job) as watcher:
        with closing(Wire(job.port)) as wire:
            return await _sent(_Load(job, watcher, wire), watcher)


async def _sent(load: _Load, watcher: _Watcher) -> Outcome:
    before_s, began_at = time.process_time(), time.perf_counter()
    await load.all()
    seconds = time.perf_counter() - began_at
    cpu_share = (time.process_time() - before_s) / max(1e-9, seconds)
    await watcher.finish()
    return Outcome(load.samples, cpu_share, seconds)


class _Load:
    def __init__(self, job: Job, watcher: _Watcher, wire: Wire) -> None:
        self.samples: list[Sample] = []
        self._job = job
        self._asking = SURFACES[job.surface](wire, job, watcher.watch)
        self._lanes = itertools.cycle(job.lanes)

    async def all(self) -> None:
        """Send them, and wait for each."""
        await (self._at_rate() if self._job.per_s else self._in_lanes())

    async def _at_rate(self) -> None:
        """One after the other at fixed times, whatever became of those before."""
        began_at = now()
        async with asyncio.TaskGroup() as tasks:
            for number in range(self._job.count):
                due_at = began_at + number / self._job.per_s
                await asyncio.sleep(max(0.0, due_at - now()))
                tasks.create_task(self._one(due_at))

    async def _in_lanes(self) -> None:
        """Each lane's next request follows the end of its last, until all are sent or the time is over."""
        until = now() + self._job.seconds if self._job.seconds else float("inf")
        left = iter(range(self._job.count))

        async def lane() -> None:
            for _ in left:
                if now() >= until:
                    return
                await self._one(now())
                await asyncio.sleep(self._job.pause_s)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(self._job.at_once):
                tasks.create_task(lane())

    async def _one(self, due_at: float) -> None:
        max_tokens = self._job.tokens_of(len(self.samples))
        sample = Sample(due_at, sent_at=now())
        self.samples.append(sample)
        try:
            async with asyncio.timeout(self._job.patience_s):
                await self._asking.ask(sample, next(self._lanes), max_tokens)
        except (Refused, OSError, TimeoutError) as failure:
            sample.failure = f"{type(failure).__name__} {failure}"


class _Watcher:
    """Looks into the runs' streams beside their readers; without an address it does not."""

    async def finish(self) -> None:
        """Let what is being watched come."""

    def watch(self, sample: Sample) -> None:
        """A run has begun."""


class _StreamWatcher(_Watcher):
    def __init__(self, url: str) -> None:
        from redis.asyncio import Redis

        self._redis = Redis.from_url(url)
        self._watching: set[asyncio.Task[None]] = set()

    def watch(self, sample: Sample) -> None:
        """Note when its first delta is there."""
        self._watching.add(asyncio.create_task(self._see(sample)))

    async def finish(self) -> None:
        """Let what is being watched come."""
        await asyncio.gather(*self._watching)

    async def close(self) -> None:
        """Hang up."""
        await self._redis.aclose()

    async def _see(self, sample: Sample) -> None:
        from inference.streams import run_key

        key, after = run_key(UUID(sample.run_id)), "0"
        while found := await self._redis.xread({key: after}, block=SEEN_WITHIN_MS):
            at = now()
            [(_, entries)] = cast(list[tuple[bytes, list[tuple[str, dict[bytes, bytes]]]]], found)
            if any(fields[b"k"] == b"delta" for _, fields in entries):
                sample.stored_at = at
                return
            after = entries[-1][0]


@asynccontextmanager
async def _watcher(job: Job) -> AsyncIterator[_Watcher]:
    if not job.streams_url:
        yield _Watcher()
        return
    watcher = _StreamWatcher(job.streams_url)
    try:
        yield watcher
    finally:
        await watcher.close()


def main() -> None:
    """Carry out what stands on stdin."""
    kernel.signal_at_parent_death(signal.SIGTERM)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    job = Job.of(json.load(sys.stdin))
    gc.disable()  # its pauses would be the server's
    with contextlib.suppress(KeyboardInterrupt):
        json.dump(uvloop.run(carry_out(job)).as_json(), sys.stdout)


if __name__ == "__main__":
    main()
