"""What a web process needs to stream: made when it starts, closed when it stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Self

from redis.asyncio import Redis

from chat.streaming import connect, rows
from chat.streaming.feeds import Feeds
from chat.streaming.follower import Follower
from chat.streaming.hub import Live
from chat.streaming.place import Place
from chat.streaming.positions import RoomPositions
from chat.streaming.seats import Seats
from chat.streaming.sharded_hub import hub_of
from chat.streaming.watch import Positions, Watch

# Of a process that stops.
BESIDE_S = 5.0


class Streams:
    """The process's hub, watch and feeds, the Redis client of its readers, and their seats. For one event loop."""

    def __init__(self, redis: Redis, feeds_redis: Redis, positions: Positions, seats: Seats) -> None:
        self.redis = redis
        self.hub = hub_of(redis)
        self.feeds = Feeds(feeds_redis)
        self.seats = seats
        self._positions = positions
        self._watch = Watch(self.hub, positions, rows.ended_among, rows.written_of)
        self._watching: asyncio.Task[None] | None = None
        self._beside = set[asyncio.Task[None]]()
        self.is_closed = False

    def follower(self, live: Live, place: Place) -> Follower:
        """A reader of a run, who has been told everything up to `place`."""
        return Follower(self.redis, self.hub, self._positions, live, place)

    def close(self) -> None:
        """End every open stream, and those to come."""
        self.is_closed = True
        self.hub.close()
        self.feeds.close()

    def beside(self, act: Coroutine[Any, Any, None]) -> None:
        """Do something that no reader waits for, and the process before it ends."""
        task = asyncio.create_task(act)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)

    async def __aenter__(self) -> Self:
        self.hub.start()
        self.feeds.start()
        self._watching = asyncio.create_task(self._watch.run(), name="stream-watch")
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.wait([*self._beside, asyncio.create_task(asyncio.sleep(0))], timeout=BESIDE_S)
        await self.hub.stop()
        await self.feeds.stop()
        if self._watching:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)


@asynccontextmanager
async def open_streams(seats: Seats) -> AsyncIterator[Streams]:
    """Streams on the Redis servers that the settings name."""
    async with (
        connect.streams_client() as redis,
        connect.feeds_client() as feeds_redis,
        connect.broker_client() as broker,
        Streams(redis, feeds_redis, RoomPositions(broker), seats) as streams,
    ):
        yield streams
