"""Readers of a run that is cancelled, or deleted, before or after a worker has it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from chat import cancelling, services
from chat.models import Chat, Run, Status
from chat.streaming import rows
from inference.streams import TERMINAL_SEQ, run_key
from tests.sse_client import Reading
from tests.streaming.telling import TEXT, Telling, Web, until

SOON_S = 10


@asynccontextmanager
async def reading(web: Web, telling: Telling) -> AsyncIterator[Reading]:
    """A reader who has been told something by now, and whose response ends soon after the block."""
    told = Reading()
    task = asyncio.create_task(web.api.read(telling.path, told))
    await until(lambda: told.events)
    async with asyncio.timeout(SOON_S):
        yield told
        assert await task == 200


async def cancel(run: Run) -> Run:
    return await rows.ask(lambda: cancelling.cancel(run))


async def delete(run: Run) -> None:
    await rows.ask(lambda: services.delete(run.chat.owner, run.chat))


async def test_a_run_that_waits_ends_for_its_reader(web: Web, telling: Telling) -> None:
    async with reading(web, telling) as told:
        await cancel(telling.run)

    assert [event.name for event in told.events] == ["queued", "cancelled"]
    assert told.ended
    assert told.ended.data["status"] == "cancelled"
    assert told.last_id == f"0-{TERMINAL_SEQ}-0"
    assert await web.api.read(telling.path, Reading(last_id=told.last_id)) == 204


async def test_who_comes_later_is_told_the_same(web: Web, telling: Telling) -> None:
    await cancel(telling.run)

    for _ in ("from the stream", "from the row"):
        told = Reading()
        assert await web.api.read(telling.path, told) == 200
        assert [(event.name, event.id) for event in told.events] == [("cancelled", f"0-{TERMINAL_SEQ}-0")]
        await telling.flush()


async def test_a_run_whose_worker_is_gone_ends_for_its_reader_without_a_reset(web: Web, telling: Telling) -> None:
    await telling.start()  # its lease has run out
    await telling.say(TEXT)
    async with reading(web, telling) as told:
        await cancel(telling.run)

    assert told.text == TEXT
    assert "reset" not in [event.name for event in told.events]
    assert told.ended
    assert (told.ended.name, told.ended.data["chars"]) == ("cancelled", len(TEXT))
    assert told.last_id == f"2-{TERMINAL_SEQ}-{len(TEXT)}"
    run = await rows.ask(lambda: Run.objects.select_related("answer").get(pk=telling.run.pk))
    assert run.answer
    assert (run.status, run.answer.content) == (Status.CANCELLED, TEXT)


async def test_the_reader_of_a_deleted_run_is_let_go(web: Web, telling: Telling) -> None:
    await telling.start()
    await telling.say(TEXT)
    async with reading(web, telling) as told:
        await delete(telling.run)

    assert told.ended
    assert told.ended.name == "cancelled"
    assert (told.text, told.ended.data["chars"]) == ("", 0)
    assert await web.api.read(telling.path, Reading(last_id=told.last_id)) == 404


async def test_also_when_the_streams_say_nothing_of_it(web: Web, telling: Telling) -> None:
    await telling.start()
    await telling.say(TEXT)
    async with reading(web, telling) as told:
        await rows.ask(lambda: Chat.objects.filter(pk=telling.run.chat_id).delete())

    assert told.ended is None
    assert told.text == TEXT


async def test_deleted_text_leaves_the_streams(web: Web, telling: Telling) -> None:
    await telling.start()
    await telling.say(TEXT)
    await telling.end()
    assert await telling.redis.exists(run_key(telling.run.pk))

    await delete(telling.run)

    assert not await telling.redis.exists(run_key(telling.run.pk))


async def test_deleted_text_of_a_live_run_leaves_them_soon(web: Web, telling: Telling) -> None:
    await telling.start()
    await telling.say(TEXT)

    await delete(telling.run)

    assert 0 < await telling.redis.ttl(run_key(telling.run.pk)) <= 60
