"""A worker inside the test's own process: an engine, a writer, and the attempts on them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from django.conf import settings
from redis.asyncio import Redis

from chat.generation import Attempts, attempts_on
from chat.models import Run
from chat.rows import Rows
from inference.control import ControlLine
from inference.engine import Engine
from inference.host import ServedModel, Workplace
from inference.scripted_engine import Script, ScriptedEngine
from inference.servers import asynchronous
from inference.stream_writer import StreamWriter
from inference.streams import Delta, Ended, Entry, Reset, read_after
from inference.tokens import Tokenizer
from scheduler.fairness import FairOrder
from tests.real_model import model_folder

T = TypeVar("T")
# No version of a row's: runs go by what their own model's row says.
SERVED = ServedModel("any", str(model_folder()), 0, {})
A_MINUTE = timedelta(minutes=1)


@dataclass
class Worker:
    """What a test holds of it."""

    attempts: Attempts
    engine: Engine
    redis: Redis
    rows: Rows

    async def ask_rows(self, act: Callable[[], T]) -> T:
        """Run `act` where the ORM may be used."""
        return await self.rows.act(act)

    async def row(self, run: Run) -> Run:
        """The run as it is stored now."""
        return await self.ask_rows(lambda: Run.objects.select_related("answer", "prompt").get(pk=run.pk))

    async def entries(self, run: Run) -> list[Entry]:
        """All that its stream holds."""
        return await read_after(self.redis, run.pk, None)

    async def until(self, condition: Callable[[], Any]) -> None:
        """Return once an awaitable `condition` comes true. Raises `TimeoutError` after far too long."""
        async with asyncio.timeout(20):
            while not await condition():  # noqa: ASYNC110  (what it asks for has no event)
                await asyncio.sleep(0.01)

    async def until_told(self, run: Run, characters: int) -> None:
        """Return once readers have seen so many characters."""

        async def told() -> bool:
            return len(told_text(await self.entries(run))) >= characters

        await self.until(told)


@asynccontextmanager
async def working(
    script: Script, lease: timedelta = A_MINUTE, name: str = "gpu@test", served: ServedModel = SERVED
) -> AsyncIterator[Worker]:
    """A worker on the scripted engine, all its other parts real."""
    engine = ScriptedEngine(script, Tokenizer.load(model_folder()))
    await engine.start()
    try:
        async with working_on(engine, lease, name, served) as worker:
            yield worker
    finally:
        await engine.stop()


@asynccontextmanager
async def working_on(
    engine: Engine, lease: timedelta = A_MINUTE, name: str = "gpu@test", served: ServedModel = SERVED
) -> AsyncIterator[Worker]:
    """A worker on an engine that has started."""
    tokenizer = Tokenizer.load(model_folder())
    rows = Rows(threads=1, name="test")
    try:
        async with (
            asynchronous(settings.STREAMS_URL) as redis,
            StreamWriter(redis) as writer,
            attempts_on(
                Workplace(name, served, model_folder(), engine, tokenizer, redis, writer, lambda: None, FairOrder()),
                lease,
            ) as attempts,
            ControlLine(redis, name, attempts.cancel) as line,
        ):
            await line.hears()
            yield Worker(attempts, engine, redis, rows)
    finally:
        rows.close()


def told_text(entries: list[Entry]) -> str:
    """What a reader of all entries has on the screen."""
    text = ""
    for entry in entries:
        match entry.event:
            case Delta() as delta:
                assert delta.offset == len(text), "a gap, or text told twice"
                text += delta.text
            case Reset(offset):
                text = text[:offset]
    return text


def endings_of(entries: list[Entry]) -> list[Ended]:
    """Its terminal entries: one, if all is well."""
    return [entry.event for entry in entries if isinstance(entry.event, Ended)]
