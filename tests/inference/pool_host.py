"""A host without rows: what the worker, the pool and an engine do by themselves. Tells a Redis list what happens.

The list is in the server of the streams, so that the broker may be away.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import cast
from uuid import UUID, uuid4

from celery import Celery
from redis import Redis as SyncRedis
from redis.asyncio import Redis

from inference.engine import EngineDead, FinishReason, Generation, Sampling
from inference.host import HandedBack, NotServed, ServedModel, Workplace
from inference.metering import Meter
from inference.pool import CoroutineTask
from inference.tokens import Turn
from scheduler.fairness import FairOrder
from tests.real_model import model_folder

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "chatsite.settings")  # Celery's settings read it
app = Celery("pool-test")
app.config_from_object("chatsite.celery_settings")
if "POOL_TEST_VISIBILITY_S" in os.environ:
    app.conf.broker_transport_options |= {
        "visibility_timeout": float(os.environ["POOL_TEST_VISIBILITY_S"]),
        "unacked_restore_interval": 0.2,
        "unacked_restore_throttle": 1,
    }
TOLD = "pool-test-told"


class Runner:
    """Generates as many tokens as a message asks for."""

    def __init__(self, workplace: Workplace, redis: Redis) -> None:
        self._workplace = workplace
        self._redis = redis
        self._requests: set[str] = set()
        self.meter = Meter()
        self.peak = 0

    def limit(self) -> int:
        return self._workplace.engine.slots

    def report(self) -> Mapping[str, float]:
        """Nothing to tell."""
        return {}

    async def take_no_more(self) -> None:
        """Nothing is kept for it."""

    async def hand_back(self) -> None:
        for request_id in list(self._requests):
            await self._workplace.engine.abort(request_id)

    def cancel(self, run_id: UUID) -> None:
        """Nobody asks for it."""

    async def generate(self, job: str, tokens: int, script: str) -> None:
        request_id = str(uuid4())
        self._requests.add(request_id)
        self.peak = max(self.peak, len(self._requests))
        await self.tell(f"begun {job}")
        try:
            await self._generate(request_id, tokens, script)
        except HandedBack:
            await self.tell(f"handed back {job}")
            raise
        except EngineDead:
            await self.tell(f"engine died under {job}")
            raise
        finally:
            self._requests.discard(request_id)
        await self.tell(f"done {job}")

    async def _generate(self, request_id: str, tokens: int, script: str) -> None:
        ids = self._workplace.tokenizer.encode_chat([Turn("user", script)])
        async with aclosing(self._workplace.engine.generate(Generation(request_id, ids, tokens, Sampling()))) as steps:
            async for step in steps:
                if step.finish_reason is FinishReason.ABORT:
                    raise HandedBack(request_id)

    async def stop_engine(self) -> None:
        await self._workplace.engine.stop()
        await self.tell("stopped the engine")

    async def tell(self, what: str) -> None:
        await self._redis.rpush(f"{TOLD}:{self._workplace.worker_name}", what)


@app.task(base=CoroutineTask, name="pool-test.generate")
async def generate(runner: Runner, job: str, tokens: int, script: str) -> int:
    await runner.generate(job, tokens, script)
    return tokens


@app.task(base=CoroutineTask, name="pool-test.stop_engine")
async def stop_engine(runner: Runner) -> None:
    await runner.stop_engine()


class PoolRoster:
    """Of no interest to anybody; `check_in` names the version that is served."""

    def __init__(self, host: PoolHost, slug: str) -> None:
        self._host, self._slug = host, slug

    def enter(self) -> ServedModel:
        return self._host.served_model(self._slug)

    def check_in(self, _phase: str, _detail: str) -> int | None:
        return 0

    def arrived(self, _revision: str, _digest: str, _manifest: object) -> None:
        pass

    def failed(self, _reason: str) -> None:
        pass

    def leave(self) -> None:
        pass


class PoolHost:
    """Serves one model, whose slug is its first queue; others, by weight, stand in the server of the streams."""

    celery_app = app

    def served_model(self, slug: str) -> ServedModel:
        if slug == "unknown":
            raise NotServed("no active model 'unknown'")
        return ServedModel(slug, str(model_folder()), 2048, self.queues(slug))

    def roster(self, slug: str, _worker_name: str) -> PoolRoster:
        return PoolRoster(self, slug)

    def queues(self, slug: str) -> Mapping[str, float]:
        with SyncRedis.from_url(os.environ["STREAMS_URL"]) as redis:
            others = cast(dict[bytes, bytes], redis.hgetall(f"{TOLD}:queues:{slug}"))
        return {slug: 1, **{name.decode(): int(weight) for name, weight in others.items()}}

    def queue_order(self) -> FairOrder:
        return FairOrder()

    def runner(self, workplace: Workplace) -> AbstractAsyncContextManager[Runner]:
        return _open(workplace)


@asynccontextmanager
async def _open(workplace: Workplace) -> AsyncIterator[Runner]:
    async with Redis.from_url(os.environ["STREAMS_URL"], client_name=TOLD) as redis:
        runner = Runner(workplace, redis)
        await runner.tell("opening")
        await asyncio.sleep(float(os.environ.get("POOL_TEST_OPENING_S", "0")))
        yield runner
        await runner.tell(f"closed, peak {runner.peak}")


host = PoolHost()
