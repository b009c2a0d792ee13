"""Sharing a few connections to Redis among hundreds of readers: in turn, and without losing any."""

from __future__ import annotations

import asyncio
import random

from redis.asyncio import Redis

from chat.streaming.connect import CONNECTIONS

SOON_S = 5


async def test_whoever_waits_for_a_connection_has_it_before_those_who_ask_again(reading: Redis) -> None:
    is_served = False
    asked = 0

    async def ask_again() -> None:
        nonlocal asked
        while not is_served:
            await reading.ping()
            asked += 1

    async def ask_once() -> None:
        nonlocal is_served
        await reading.ping()
        is_served = True

    busy = [asyncio.create_task(ask_again()) for _ in range(CONNECTIONS)]
    await asyncio.sleep(0)
    await asyncio.wait_for(asyncio.gather(ask_once(), *busy), 2 * SOON_S)

    assert asked <= 3 * CONNECTIONS


async def test_readers_who_hang_up_at_any_moment_take_no_connection_along(reading: Redis) -> None:
    async def hang_up() -> None:
        asking = asyncio.ensure_future(reading.ping())
        for _ in range(random.randrange(12)):
            await asyncio.sleep(0)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)

    for _ in range(10):
        await asyncio.gather(*(hang_up() for _ in range(3 * CONNECTIONS)))

    pool = reading.connection_pool
    async with asyncio.timeout(SOON_S):
        lent = [await pool.get_connection() for _ in range(CONNECTIONS)]  # type: ignore[no-untyped-call]
    for connection in lent:
        await pool.release(connection)
