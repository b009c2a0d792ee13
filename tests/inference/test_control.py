"""A worker's control channel: what is said on it arrives, whatever becomes of connections."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.conf import settings
from redis.asyncio import Redis
from redis.asyncio.client import PubSub

from inference.control import ControlLine
from inference.streams import control_channel
from tests.subscriptions import subscribers

SOON_S = 10


@pytest.fixture
async def redis() -> AsyncIterator[Redis]:
    # As the worker's client: its timeout is shorter than the line's patience.
    async with Redis.from_url(settings.STREAMS_URL, socket_timeout=0.2) as client:
        yield client


@pytest.fixture
def name() -> str:
    return f"gpu@{uuid4()}"


class Stops:
    """What a worker was told to stop."""

    def __init__(self) -> None:
        self.heard: asyncio.Queue[UUID] = asyncio.Queue()

    def __call__(self, run_id: UUID) -> None:
        self.heard.put_nowait(run_id)

    async def next(self) -> UUID:
        async with asyncio.timeout(SOON_S):
            return await self.heard.get()


async def listeners(redis: Redis, name: str) -> int:
    [(_, count)] = await redis.pubsub_numsub(control_channel(name))
    return int(count)


async def test_runs_that_are_named_are_stopped_in_order(redis: Redis, name: str) -> None:
    stops, runs = Stops(), [uuid4() for _ in range(5)]
    async with ControlLine(redis, name, stops) as line:
        await line.hears()
        for run_id in runs:
            await redis.publish(control_channel(name), str(run_id))

        assert [await stops.next() for _ in runs] == runs


async def test_what_names_no_run_is_passed_over(redis: Redis, name: str, caplog: pytest.LogCaptureFixture) -> None:
    stops, run_id = Stops(), uuid4()
    async with ControlLine(redis, name, stops) as line:
        await line.hears()
        for said in (b"\xff\xfe", b"", b"stop everything", str(run_id).encode()):
            await redis.publish(control_channel(name), said)

        assert await stops.next() == run_id
    assert "stop everything" not in caplog.text


async def test_silence_is_no_reason_to_connect_again(redis: Redis, name: str) -> None:
    stops, run_id = Stops(), uuid4()
    async with ControlLine(redis, name, stops, silence_s=0.3) as line:
        await line.hears()
        [connection] = await subscribers(redis)
        await asyncio.sleep(1.5)
        await redis.publish(control_channel(name), str(run_id))

        assert await stops.next() == run_id
        assert await subscribers(redis) == [connection]


async def test_a_connection_that_answers_no_ping_is_given_up(
    redis: Redis, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stops, run_id = Stops(), uuid4()
    async with ControlLine(redis, name, stops, silence_s=0.2) as line:
        await line.hears()
        with monkeypatch.context() as deaf:
            deaf.setattr(PubSub, "ping", _say_nothing)
            while line._hears.is_set():  # noqa: ASYNC110  (the line has no event for deafness)
                await asyncio.sleep(0.01)
        async with asyncio.timeout(SOON_S):
            await line.hears()
        await redis.publish(control_channel(name), str(run_id))

        assert await stops.next() == run_id


async def _say_nothing(_pubsub: PubSub) -> None:
    pass


async def test_a_connection_that_was_cut_is_made_anew(redis: Redis, name: str) -> None:
    stops, run_id = Stops(), uuid4()
    async with ControlLine(redis, name, stops) as line:
        await line.hears()
        assert await redis.client_kill_filter(_type="pubsub")
        async with asyncio.timeout(SOON_S):
            while not await redis.publish(control_channel(name), str(run_id)):  # noqa: ASYNC110  (Redis tells nobody)
                await asyncio.sleep(0.01)

        assert await stops.next() == run_id


async def test_a_stop_that_goes_wrong_does_not_end_the_line(
    redis: Redis, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    stops, bad, good = Stops(), uuid4(), uuid4()

    def stop(run_id: UUID) -> None:
        if run_id == bad:
            raise RuntimeError("as the test has it")
        stops(run_id)

    async with ControlLine(redis, name, stop) as line:
        await line.hears()
        await redis.publish(control_channel(name), str(bad))
        async with asyncio.timeout(SOON_S):
            while not stops.heard.qsize():
                await redis.publish(control_channel(name), str(good))
                await asyncio.sleep(0.02)

    assert await stops.next() == good
    assert "control.away error=RuntimeError" in caplog.text


async def test_it_closes_and_leaves_no_connection_behind(redis: Redis, name: str) -> None:
    async with ControlLine(redis, name, Stops()) as line:
        await line.hears()
        assert await listeners(redis, name) == 1

    assert await listeners(redis, name) == 0


async def test_it_closes_while_redis_is_away(name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    away = Redis.from_url("redis://127.0.0.1:1/0")
    async with away, asyncio.timeout(SOON_S), ControlLine(away, name, Stops()):
        while "control.away" not in caplog.text:  # noqa: ASYNC110  (a log has no event)
            await asyncio.sleep(0.01)

    assert "Traceback" not in caplog.text


async def test_it_closes_though_the_client_swallows_a_cancel(
    redis: Redis, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    swallowed: list[str] = []

    async def swallow_once(pubsub: PubSub, **options: Any) -> Any:
        try:
            return await get_message(pubsub, **options)
        except asyncio.CancelledError:
            if swallowed:
                raise
            swallowed.append("a cancel that met a timeout")
            return None

    get_message = PubSub.get_message
    monkeypatch.setattr(PubSub, "get_message", swallow_once)
    async with asyncio.timeout(SOON_S), ControlLine(redis, name, Stops(), silence_s=60) as line:
        await line.hears()

    assert swallowed
    assert await listeners(redis, name) == 0
