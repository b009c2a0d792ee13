"""Opening a stream while Redis is away: an answer, never a hang."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest
from django.conf import LazySettings

from chatsite.asgi import Application
from tests.sse_client import Api, Reading
from tests.streaming.telling import TEXT, Telling, Web, serving, until

SOON_S = 10


@pytest.fixture
async def cut_off(telling: Telling, alices_key: str, settings: LazySettings) -> AsyncIterator[Api]:
    """Alice's view of a web process whose Redis servers take no connections."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nowhere = f"redis://127.0.0.1:{taken.getsockname()[1]}/0"
    settings.STREAMS_URL = settings.BROKER_URL = nowhere
    settings.WHITENOISE_AUTOREFRESH = True
    application = Application()
    async with serving(application) as port:
        yield Api(port, alices_key)


async def test_an_ended_run_is_told_from_postgres(cut_off: Api, telling: Telling) -> None:
    await telling.start()
    await telling.say(TEXT)
    await telling.end()
    reading = Reading(text=TEXT[:5], last_id="1-0-5")

    assert await asyncio.wait_for(cut_off.read(telling.path, reading), SOON_S) == 200

    assert reading.text == TEXT
    assert reading.ended


async def test_a_live_run_is_answered_503_with_when_to_come_back(cut_off: Api, telling: Telling) -> None:
    await telling.start()

    async with asyncio.timeout(SOON_S), cut_off.stream(telling.path) as answer:
        problem = await answer.json()

    assert (answer.status, problem["code"]) == (503, "streams_unavailable")
    assert int(answer.headers["retry-after"]) > 0


async def test_the_broker_away_leaves_a_waiting_run_without_a_place(
    alices_key: str, telling: Telling, settings: LazySettings
) -> None:
    settings.BROKER_URL = "redis://127.0.0.1:9/0"
    settings.WHITENOISE_AUTOREFRESH = True
    reading = Reading()
    async with serving(Application()) as port:
        task = asyncio.create_task(Api(port, alices_key).read(telling.path, reading))
        await until(lambda: reading.events)
        await telling.start()
        await telling.say(TEXT)
        await telling.end()
        await asyncio.wait_for(task, SOON_S)

    assert reading.events[0].data["position"] is None
    assert reading.text == TEXT


async def test_a_reader_that_does_not_read_holds_up_nobody(web: Web, telling: Telling) -> None:
    await telling.start()
    async with web.api.stream(telling.path):  # opened, and never read
        reading = Reading()
        task = asyncio.create_task(web.api.read(telling.path, reading))
        await until(lambda: reading.events)
        for _ in range(300):
            await telling.say("x" * 20_000)
        await telling.end()
        await asyncio.wait_for(task, 20)

    assert reading.text == telling.text
