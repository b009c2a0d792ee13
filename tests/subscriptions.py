"""Who listens to Redis: other tests' products listen to the same server, from other numbered databases."""

from __future__ import annotations

from typing import Any

from redis.asyncio import Redis


async def subscribers(redis: Redis) -> list[Any]:
    """The ids of the connections to the client's own database that have subscribed to something."""
    database = str(redis.connection_pool.connection_kwargs.get("db", 0))
    listening: list[dict[str, Any]] = await redis.client_list(_type="pubsub")
    return [client["id"] for client in listening if client["db"] == database]
