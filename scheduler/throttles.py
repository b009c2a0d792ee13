"""How often a thing may be done: sliding windows, counted in Redis and by its clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import ceil

from limits import RateLimitItem
from limits.storage import RedisClusterStorage, RedisStorage
from limits.strategies import SlidingWindowCounterRateLimiter

from inference import servers
from scheduler.dispensable import DispensableRedis
from scheduler.errors import Refused

PREFIX = "throttle"


@dataclass(frozen=True, slots=True)
class Left:
    """How often a thing may still be done, and in how many whole seconds it may be once more than that."""

    count: int
    more_in_s: int


class Windows:
    """Counters that a process shares with all others. While Redis is away nothing is counted, and everything passes."""

    def __init__(self, redis: DispensableRedis) -> None:
        self._redis = redis

    @cached_property
    def _limiter(self) -> SlidingWindowCounterRateLimiter:
        return SlidingWindowCounterRateLimiter(_storage(self._redis))

    def add(self, item: RateLimitItem, name: str, count: int = 1) -> bool:
        """Count in `name`'s window, unless that takes it over the limit: then False, and nothing is counted.

        One round trip. A negative count takes back what was counted.
        """
        return self._redis.ask(lambda: self._limiter.hit(item, name, cost=count), otherwise=True)

    def wait_s(self, item: RateLimitItem, name: str) -> int:
        """Whole seconds until a full window of `name`'s has room again, at least 1."""
        return max(1, self.left(item, name).more_in_s)

    def left(self, item: RateLimitItem, name: str) -> Left:
        """What `name`'s window has room for. One round trip."""
        return self._redis.ask(lambda: self._left(item, name), otherwise=Left(item.amount, 0))

    def _left(self, item: RateLimitItem, name: str) -> Left:
        reset, count = self._limiter.get_window_stats(item, name)
        return Left(count, max(0, ceil(reset - time.time())))


def _storage(redis: DispensableRedis) -> RedisStorage:
    if not servers.is_cluster(redis.url):
        return RedisStorage(redis.url, connection_pool=redis.client.connection_pool, key_prefix=PREFIX)
    seeds = servers.Seeds.parse(redis.url)
    nodes = ",".join(f"{host}:{port}" for host, port in seeds.nodes)
    # It takes no client of ours: a process has one more connection to a node for each thread.
    return RedisClusterStorage(f"redis+cluster://{nodes}", key_prefix=PREFIX, **seeds.options, **redis.options)


class Throttle:
    """One rule: so many in so long for each name, or this refusal."""

    def __init__(self, windows: Windows, item: RateLimitItem, refusal: Callable[[int], Refused]) -> None:
        self._windows = windows
        self._item = item
        self._refusal = refusal
        self.count = item.amount
        self.window_s = item.get_expiry()

    def take(self, name: str) -> None:
        """Count one. Raises the rule's refusal, with the seconds to wait; who is refused is not counted."""
        if not self._windows.add(self._item, name):
            raise self._refusal(self._windows.wait_s(self._item, name))

    def left(self, name: str) -> Left:
        """What `name` may still do. All of it while Redis is away."""
        return self._windows.left(self._item, name)

    def give_back(self, name: str) -> None:
        """Count one less."""
        self._windows.add(self._item, name, -1)
