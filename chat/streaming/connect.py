"""How the web tier connects to Redis: with limits on every wait, so that an outage is an answer and not a hang."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import redis
from django.conf import settings
from redis.asyncio import Connection, ConnectionPool, Redis
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import ConstantBackoff
from redis.connection import HiredisRespSerializer
from redis.exceptions import ConnectionError as ConnectionLost

from inference import servers

CONNECT_TIMEOUT_S = 2.0
REPLY_TIMEOUT_S = 5.0
# Readers wait for one of them as long as a busy process may need, when hundreds come back at once.
SLOT_TIMEOUT_S = 5.0
# A command takes some turns of the loop, and a turn is long when hundreds of readers come: with few connections the
# queue for them outlasts everybody's patience while Redis has nothing to do.
CONNECTIONS = 64


class PackingConnection(Connection):
    """Packs commands in C, as redis-py's blocking client does: five times as fast, for an XREAD of hundreds of keys."""

    _packer = HiredisRespSerializer()

    def pack_command(self, *args: Any) -> list[bytes]:
        """A command as it is sent."""
        packed: list[bytes] = self._packer.pack(*args)
        return packed


class FairPool(ConnectionPool):
    """Lends its connections in the order in which they were asked for; whoever waits too long gets `ConnectionError`.

    In redis-py's own BlockingConnectionPool a task that asks again and again takes, each time, the connection for which
    one that waits was just woken, and that one goes to the end of the queue.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._free = asyncio.Semaphore(self.max_connections)

    async def get_connection(self, *_args: Any, **_options: Any) -> AbstractConnection:
        """A connection that is ready. Raises `ConnectionError`, as redis-py has it, when none is free for long."""
        try:
            async with asyncio.timeout(SLOT_TIMEOUT_S):
                await self._free.acquire()
        except TimeoutError as timeout:
            raise ConnectionLost(f"no connection to Redis was free for {SLOT_TIMEOUT_S:.0f} s") from timeout
        # Which releases it when it cannot be made ready.
        connection: AbstractConnection = await super().get_connection()  # type: ignore[no-untyped-call]
        return connection

    async def release(self, connection: AbstractConnection) -> None:
        """Take it back; a cancellation meanwhile loses nothing. Raises `KeyError` for one that is not lent."""
        is_lent = connection in self._in_use_connections
        try:
            await super().release(connection)
        finally:
            if is_lent:
                self._free.release()


def streams_client() -> Redis:
    """A client of the streams' Redis, for one event loop. The owner closes it."""
    return _client(settings.STREAMS_URL)


def feeds_client() -> Redis:
    """A client for one subscription to the streams' Redis. It tries nothing twice: what is lost must be noticed."""
    return servers.asynchronous(
        settings.STREAMS_URL, socket_timeout=REPLY_TIMEOUT_S, socket_connect_timeout=CONNECT_TIMEOUT_S
    )


def broker_client() -> Redis:
    """A client of the broker's Redis, where the rooms are, for one event loop. The owner closes it."""
    return _client(settings.BROKER_URL)


def blocking_client() -> redis.Redis:
    """A client of the streams' Redis for threads."""
    return servers.blocking(
        settings.STREAMS_URL, socket_timeout=REPLY_TIMEOUT_S, socket_connect_timeout=CONNECT_TIMEOUT_S
    )


def _client(url: str) -> Redis:
    waits = {"socket_timeout": REPLY_TIMEOUT_S, "socket_connect_timeout": CONNECT_TIMEOUT_S}
    if servers.is_cluster(url):
        return cast(Redis, servers.Cluster(servers.Seeds.parse(url), repeats=True, **waits))
    pool = FairPool.from_url(
        url,
        connection_class=PackingConnection,  # unless the URL asks for another, as one over TLS
        max_connections=CONNECTIONS,
        # Once, for a connection that the server closed; every command here is a read or safe to repeat. Not after a
        # timeout: a server that is silent would be waited for twice.
        retry=Retry(ConstantBackoff(0.05), 1, supported_errors=(ConnectionLost,)),
        **waits,
    )
    return Redis.from_pool(pool)
