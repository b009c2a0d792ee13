"""How many streams a user, and a process, may have open; and that each gives its place back however it ends."""

from __future__ import annotations

import asyncio

import pytest
from django.conf import LazySettings

from chat.models import Run
from chat.streaming import opening, rows
from tests.sse_client import Api, Reading
from tests.streaming.telling import Telling, Web, until


def taken(web: Web) -> int:
    assert web.application._streams
    return web.application._streams.seats.taken


async def refusal(api: Api, path: str) -> tuple[int, str, int]:
    async with api.stream(path) as answer:
        return answer.status, (await answer.json())["code"], int(answer.headers["retry-after"])


async def test_a_user_with_too_many_streams_is_told_so_and_others_are_served(
    web: Web, telling: Telling, bobs_key: str, settings: LazySettings
) -> None:
    settings.STREAMS_PER_USER = 2
    async with web.api.stream(telling.path), web.api.stream("/api/events") as second:
        assert second.status == 200
        for path in (telling.path, "/api/events"):
            assert await refusal(web.api, path) == (429, "too_many_streams", 5)
        async with Api(web.port, bobs_key).stream("/api/events") as bobs:
            assert bobs.status == 200


async def test_a_full_process_is_answered_503(
    web: Web, telling: Telling, bobs_key: str, settings: LazySettings
) -> None:
    settings.STREAMS_PER_PROCESS = 1
    async with web.api.stream(telling.path):
        assert await refusal(Api(web.port, bobs_key), "/api/events") == (503, "streams_full", 5)


@pytest.mark.parametrize("of_feed", [False, True])
async def test_clients_that_leave_at_any_moment_leave_no_seat_taken(web: Web, telling: Telling, of_feed: bool) -> None:
    path = f"/api/events?run={telling.run.pk}" if of_feed else telling.path
    for delay_ms in range(0, 40, 2):
        _, writer = await asyncio.open_connection("127.0.0.1", web.port)
        head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {web.key}\r\n\r\n"
        writer.write(head.encode())
        await asyncio.sleep(delay_ms / 1000)
        writer.transport.abort()

    await until(lambda: taken(web) == 0)
    async with web.api.stream(path) as answer:
        assert answer.status == 200
        assert taken(web) == 1
    await until(lambda: taken(web) == 0)


async def test_streams_that_end_or_are_refused_leave_no_seat_taken(web: Web, telling: Telling) -> None:
    await telling.start()
    async with web.api.stream(telling.path, "1-5000-3") as answer:
        assert answer.status == 400
    reading = asyncio.create_task(web.api.read(telling.path, Reading()))
    await until(lambda: taken(web) == 1)
    await rows.ask(lambda: Run.objects.filter(pk=telling.run.pk).delete())
    await asyncio.wait_for(reading, 10)

    await until(lambda: taken(web) == 0)


async def test_an_opening_that_breaks_leaves_no_seat_taken(
    web: Web, telling: Telling, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(opening, "backlog", broken)
    async with web.api.stream(telling.path) as answer:
        assert (answer.status, (await answer.json())["code"]) == (500, "internal_error")

    await until(lambda: taken(web) == 0)
