"""A Redis that may be away: what is asked of it is worth a short wait, and not each time."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from typing import Any, TypeVar

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as ConnectionLost
from redis.retry import Retry

from inference import servers

logger = logging.getLogger(__name__)

T = TypeVar("T")

# A Redis this slow is as good as none.
PATIENCE_S = 0.5
PAUSE_S = 2.0


class DispensableRedis:
    """Connections for threads, and the memory that they failed of late."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._away_until = 0.0

    @cached_property
    def client(self) -> Redis:
        """For use in questions: one of a cluster finds its nodes when it is made."""
        return servers.blocking(self.url, **self.options)

    @property
    def options(self) -> dict[str, Any]:
        """How to connect."""
        return {
            "socket_timeout": PATIENCE_S,
            "socket_connect_timeout": PATIENCE_S,
            # Once and at once, for a connection that the server had closed; never after a wait.
            "retry": Retry(NoBackoff(), 1, supported_errors=(ConnectionLost,)),
        }

    def script(self, text: str) -> Callable[..., Any]:
        """A Lua operation, likewise."""
        registered = lru_cache(1)(lambda: self.client.register_script(text))

        def run(keys: Sequence[str], args: Sequence[str | int]) -> Any:
            return registered()(keys, args)

        return run

    def ask(self, question: Callable[[], T], otherwise: T) -> T:
        """Ask, or say `otherwise` while Redis is away: then one thread in `PAUSE_S` waits, and one line is logged."""
        if time.monotonic() < self._away_until:
            return otherwise
        try:
            return question()
        except servers.AWAY as failure:
            self._away_until = time.monotonic() + PAUSE_S
            logger.warning("redis.away reason=%s", type(failure).__name__)
            return otherwise


@lru_cache
def shared(url: str) -> DispensableRedis:
    """The process's own for this server."""
    return DispensableRedis(url)
