"""A worker's control channel: ids of the runs that it is to stop, as soon as somebody says so."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Self
from uuid import UUID

from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

from inference.servers import listening
from inference.streams import control_channel

logger = logging.getLogger(__name__)

# A connection that says nothing for so long is asked for a sign of life, and given up after as long again.
SILENCE_S = 10.0
BACKOFF_MIN_S = 0.1
BACKOFF_MAX_S = 2.0
CANCEL_AGAIN_S = 0.1


class ControlLine:
    """Hears the channel on a connection of its own, and calls `stop` for each run id, on this event loop.

    Supervised: it comes back after any failure. What is said meanwhile is lost, and made good by whoever keeps the
    record: a nudge saves time and is no more than that.
    """

    def __init__(
        self, redis: Redis, worker_name: str, stop: Callable[[UUID], None], silence_s: float = SILENCE_S
    ) -> None:
        self._redis = redis
        self._channel = control_channel(worker_name)
        self._stop = stop
        self._silence_s = silence_s
        self._backoff_s = 0.0
        self._is_closed = False
        self._listening: asyncio.Task[None] | None = None
        self._hears = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._listening = asyncio.create_task(self._listen_until_closed(), name="control-line")
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._listening is not None
        self._is_closed = True
        # Until it ends: a cancel that meets a timeout or a lost connection inside redis-py is lost there (seen).
        while not self._listening.done():
            self._listening.cancel()
            await asyncio.wait({self._listening}, timeout=CANCEL_AGAIN_S)

    async def hears(self) -> None:
        """Return once the channel is subscribed to."""
        await self._hears.wait()

    async def _listen_until_closed(self) -> None:
        while not self._is_closed:
            await asyncio.sleep(self._backoff_s)
            try:
                await self._listen()
            except Exception as failure:
                self._back_off(failure)
            finally:
                self._hears.clear()

    def _back_off(self, failure: Exception) -> None:
        self._backoff_s = min(BACKOFF_MAX_S, max(BACKOFF_MIN_S, 2 * self._backoff_s))
        known = isinstance(failure, RedisError | OSError)
        logger.warning("control.away error=%s", type(failure).__name__, exc_info=not known)

    async def _listen(self) -> None:
        async with listening(self._redis) as pubsub:
            await pubsub.subscribe(self._channel)
            while True:
                self._heed(await self._next(pubsub))

    async def _next(self, pubsub: PubSub) -> dict[str, Any]:
        """The next thing that Redis says. Raises `RedisConnectionError` when it does not even answer a ping."""
        message: dict[str, Any] | None = await pubsub.get_message(timeout=self._silence_s)
        if message is None:
            await pubsub.ping()
            message = await pubsub.get_message(timeout=self._silence_s)
        if message is None:
            raise RedisConnectionError("no answer to a ping")
        return message

    def _heed(self, message: dict[str, Any]) -> None:
        match message["type"]:
            case "subscribe":
                self._backoff_s = 0.0
                self._hears.set()
            case "message":
                self._stop_named(message["data"])

    def _stop_named(self, data: bytes) -> None:
        try:
            run_id = UUID(data.decode())
        except ValueError:
            logger.warning("control.not_a_run length=%d", len(data))
        else:
            self._stop(run_id)
