"""Keeps from other workers what this one runs: the broker delivers again what was not acknowledged in time.

Kombu's Redis transport puts back a message once its score in a sorted set, the time of its delivery, is older than the
`visibility_timeout`, whether its worker lives or not, and has no renewal (celery/celery#5935). So we renew the scores.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

logger = logging.getLogger(__name__)

INDEX = "unacked_index"  # kombu's own name, the same for all queues of a broker
RENEWALS_A_TIMEOUT = 3
SOCKET_TIMEOUT_S = 5.0


@asynccontextmanager
async def renewing(broker_url: str, timeout_s: float, tags: Callable[[], Collection[str]]) -> AsyncIterator[None]:
    """Renew the deliveries that `tags` names, in a task beside.

    On a connection of its own, apart from Celery's hub: that does not turn while the pool drains, nor while the broker
    is away, and it has new channels afterwards.
    """
    redis = Redis.from_url(
        broker_url,
        socket_timeout=SOCKET_TIMEOUT_S,
        socket_connect_timeout=SOCKET_TIMEOUT_S,
        retry=Retry(NoBackoff(), retries=0),
    )
    task = asyncio.create_task(_renew_for_ever(redis, timeout_s / RENEWALS_A_TIMEOUT, tags), name="visibility")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})
        await redis.aclose()


async def _renew_for_ever(redis: Redis, every_s: float, tags: Callable[[], Collection[str]]) -> None:
    while True:
        await asyncio.sleep(every_s)
        try:
            await renew(redis, tags())
        except (RedisError, OSError) as error:
            logger.warning("visibility.not_renewed error=%s", type(error).__name__)
        except Exception:
            logger.exception("visibility.not_renewed")


async def renew(redis: Redis, tags: Collection[str]) -> None:
    """Count the time of these deliveries from now."""
    if tags:
        now = time.time()  # as kombu does: the clocks of workers
        # XX: what was acknowledged or put back meanwhile must not rise again.
        await redis.zadd(INDEX, dict.fromkeys(tags, now), xx=True)
