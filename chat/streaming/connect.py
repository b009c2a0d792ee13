"""How the web tier connects to Redis: with limits on every wait, so that an outage is an answer and not a hang."""

from __future__ import annotations

from typing import Any

import redis
from django.conf import settings
from redis.asyncio import BlockingConnectionPool, Connection, Redis
from redis.asyncio.retry import Retry
from redis.backoff import ConstantBackoff, NoBackoff
from redis.connection import HiredisRespSerializer
from redis.exceptions import ConnectionError as ConnectionLost

CONNECT_TIMEOUT_S = 2.0
REPLY_TIMEOUT_S = 5.0
# Readers wait for one of them as long as a busy process may need, when hundreds come back at once.
SLOT_TIMEOUT_S = 5.0
# Waiting readers share these; the pool waits for a free one instead of failing, unlike redis-py's default.
CONNECTIONS = 16


class PackingConnection(Connection):
    """Packs commands in C, as redis-py's blocking client does: five times as fast, for an XREAD of hundreds of keys."""

    _packer = HiredisRespSerializer()

    def pack_command(self, *args: Any) -> list[bytes]:
        """A command as it is sent."""
        packed: list[bytes] = self._packer.pack(*args)
        return packed


def streams_client() -> Redis:
    """A client of the streams' Redis, for one event loop. The owner closes it."""
    return _client(settings.STREAMS_URL)


def feeds_client() -> Redis:
    """A client for one subscription to the streams' Redis. It tries nothing twice: what is lost must be noticed."""
    return Redis.from_url(
        settings.STREAMS_URL,
        socket_timeout=REPLY_TIMEOUT_S,
        socket_connect_timeout=CONNECT_TIMEOUT_S,
        retry=Retry(NoBackoff(), 0),
    )


def broker_client() -> Redis:
    """A client of the broker's Redis, where the rooms are, for one event loop. The owner closes it."""
    return _client(settings.BROKER_URL)


def blocking_client() -> redis.Redis:
    """A client of the streams' Redis for threads."""
    return redis.Redis.from_url(
        settings.STREAMS_URL, socket_timeout=REPLY_TIMEOUT_S, socket_connect_timeout=CONNECT_TIMEOUT_S
    )


def _client(url: str) -> Redis:
    pool = BlockingConnectionPool.from_url(
        url,
        connection_class=PackingConnection,  # unless the URL asks for another, as one over TLS
        max_connections=CONNECTIONS,
        timeout=SLOT_TIMEOUT_S,
        socket_timeout=REPLY_TIMEOUT_S,
        socket_connect_timeout=CONNECT_TIMEOUT_S,
        # Once, for a connection that the server closed; every command here is a read or safe to repeat. Not after a
        # timeout: a server that is silent would be waited for twice.
        retry=Retry(ConstantBackoff(0.05), 1, supported_errors=(ConnectionLost,)),
    )
    return Redis.from_pool(pool)
