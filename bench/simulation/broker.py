"""Celery's queues as kombu keeps them in Redis: a list each, whose tail is next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import cast

from redis import Redis


class Broker:
    """Sends and delivers messages. Of a message only the run's id is there; nobody else touches these queues."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._depths = Counter[str]()

    def send(self, queue: str, run_ids: Sequence[str]) -> None:
        """Put messages into a queue."""
        self._redis.lpush(queue, *run_ids)
        self._depths[queue] += len(run_ids)

    def moved(self, queue: str, to: str) -> None:
        """A script has moved a message."""
        self._depths[queue] -= 1
        self._depths[to] += 1

    def pull(self, queues: Sequence[str]) -> tuple[str, str] | None:
        """The next message of the first queue that has any, in the order given, with that queue; what BRPOP does."""
        queue = next((queue for queue in queues if self._depths[queue]), None)
        if queue is None:
            return None
        self._depths[queue] -= 1
        return queue, cast(bytes, self._redis.rpop(queue)).decode()
