"""A run whose worker is the test, and a web process in the test's own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast
from uuid import UUID

import uvicorn
from django.db.models.functions import Now
from redis.asyncio import Redis

from chat.endings import ended
from chat.models import Checkpoint, Role, Run, Status
from chat.streaming import rows
from chatsite.asgi import Application
from chatsite.serve import Server, listen
from inference.streams import Delta, Ended, EntryId, Event, Reset, Started, fields, run_key
from tests.acts import add_message
from tests.sse_client import Api

TEXT = "Grüße, 世界! سلام دنیا 👩‍👩‍👧‍👦 e\u0301."


async def add(redis: Redis, run_id: UUID, entry_id: EntryId, event: Event) -> None:
    """XADD, as a worker does."""
    stored: dict[Any, Any] = dict(fields(event))
    await redis.xadd(run_key(run_id), stored, id=str(entry_id))


async def until(condition: Callable[[], object]) -> None:
    """Return as soon as `condition` holds. Raises `TimeoutError` after far too long."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110  (conditions have no event to wait for)
            await asyncio.sleep(0.005)


@dataclass
class Telling:
    """A run, and the stream its worker would write; every act is one entry."""

    run: Run
    redis: Redis
    attempt: int = 1
    seq: int = 0
    text: str = ""
    ids: list[EntryId] = field(default_factory=list)
    resumed_at: dict[str, int] = field(default_factory=dict)
    saved: int = 0

    @property
    def path(self) -> str:
        """The address of its events."""
        return f"/api/runs/{self.run.pk}/stream"

    async def start(self, attempt: int = 1) -> None:
        """A worker claims the run."""
        self.attempt, self.seq = attempt, 0
        await rows.ask(lambda: self.update(status=Status.STREAMING, attempt=attempt, lease_until=Now(), worker="w"))
        await self.add(EntryId.fence(attempt), Started(attempt, "m"))

    async def say(self, text: str) -> None:
        """A delta."""
        self.seq += 1
        await self.add(EntryId(self.attempt, self.seq), Delta(text, len(self.text), (1, 2)))
        self.text += text

    async def reset(self, offset: int) -> None:
        """A reset, and the row's note of it."""
        self.seq += 1
        self.text = self.text[:offset]
        self.resumed_at[str(self.attempt)] = offset
        await rows.ask(lambda: self.update(resumed_at=self.resumed_at))
        await self.add(EntryId(self.attempt, self.seq), Reset(offset))

    async def take_over(self, offset: int) -> None:
        """Another worker claims the run and goes on from `offset`."""
        await self.start(self.attempt + 1)
        await self.reset(offset)

    async def put_by(self) -> None:
        """A checkpoint of the text that has none."""
        piece = Checkpoint(
            run=self.run, attempt=self.attempt, offset=self.saved, text=self.text[self.saved :], token_ids=[1]
        )
        await rows.ask(piece.save)
        self.saved = len(self.text)

    async def commit(self, status: Status = Status.DONE) -> None:
        """The row's end, with its message, and no entry yet."""
        await rows.ask(lambda: self.committed(status))

    def committed(self, status: Status) -> None:
        answer = add_message(self.run.chat, Role.ASSISTANT, self.text)
        self.update(status=status, finished_at=Now(), lease_until=None, answer=answer, finish_reason="stop")

    def update(self, **columns: Any) -> None:
        Run.objects.filter(pk=self.run.pk).update(**columns)

    async def ended(self) -> Ended:
        """The terminal event as the row has it."""
        return await rows.ask(lambda: ended(Run.objects.get(pk=self.run.pk), self.text))

    async def end(self, status: Status = Status.DONE) -> None:
        """The row's end, then the terminal entry."""
        await self.commit(status)
        await self.add(EntryId.terminal(self.attempt), await self.ended())

    async def add(self, entry_id: EntryId, event: Event) -> None:
        """XADD."""
        await add(self.redis, self.run.pk, entry_id, event)
        self.ids.append(entry_id)

    async def flush(self) -> None:
        """The stream expires."""
        await self.redis.delete(run_key(self.run.pk))

    async def trim(self) -> None:
        """Only the newest entry stays."""
        await self.redis.xtrim(run_key(self.run.pk), minid=str(self.ids[-1]), approximate=False)

    async def lose_last(self, count: int) -> None:
        """Redis is back without the last entries."""
        key = run_key(self.run.pk)
        kept = cast(list[tuple[bytes, Any]], await self.redis.xrange(key))[:-count]
        async with self.redis.pipeline(transaction=True) as pipe:
            pipe.delete(key)
            for entry_id, stored in kept:
                pipe.xadd(key, stored, id=entry_id)
            await pipe.execute()


@dataclass
class Web:
    """A web process's server in this one, and Alice's key."""

    port: int
    key: str
    application: Application

    @property
    def api(self) -> Api:
        """Alice's view of it."""
        return Api(self.port, self.key)

    @property
    def readers(self) -> int:
        """How many readers its hub has."""
        assert self.application._streams
        return self.application._streams.hub.readers


class QuietServer(Server):
    """The product's server without its hold on the test process's signals."""

    async def serve(self, sockets: list[Any] | None = None) -> None:
        """Serve until `should_exit`."""
        await self._serve(sockets)


@asynccontextmanager
async def serving(application: Application) -> AsyncIterator[int]:
    """The application behind uvicorn on a free port, which is yielded."""
    bound = listen("127.0.0.1", 0)
    config = uvicorn.Config(application, lifespan="on", log_config=None, timeout_graceful_shutdown=5)
    server = QuietServer(config, application)
    serving_task = asyncio.create_task(server.serve([bound]))
    while not server.started:
        await asyncio.sleep(0.01)
        assert not serving_task.done(), serving_task.result()
    try:
        yield bound.getsockname()[1]
    finally:
        server.should_exit = True
        await serving_task
