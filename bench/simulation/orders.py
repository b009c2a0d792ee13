"""Orders to compare the room's with: first come first served, and users in turn."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from typing import Protocol
from uuid import UUID

from redis import Redis

from scheduler.room import Correction, Departure, Newcomer, Release, queue_name
from scheduler.routing import Report


class Order(Protocol):
    """Who is next."""

    def add(self, newcomer: Newcomer) -> None:
        """One more waits."""

    def take(self) -> Newcomer | None:
        """The next; None when nobody waits."""


class FirstCome:
    """First come, first served."""

    def __init__(self) -> None:
        self._waiting = deque[Newcomer]()

    def add(self, newcomer: Newcomer) -> None:
        """To the end."""
        self._waiting.append(newcomer)

    def take(self) -> Newcomer | None:
        """From the front."""
        return self._waiting.popleft() if self._waiting else None


class RoundRobin:
    """One run of each user in turn, whatever it costs."""

    def __init__(self) -> None:
        self._waiting = OrderedDict[UUID, deque[Newcomer]]()

    def add(self, newcomer: Newcomer) -> None:
        """To the end of its user's; who had none waits behind all users."""
        self._waiting.setdefault(newcomer.user_id, deque()).append(newcomer)

    def take(self) -> Newcomer | None:
        """From the user whose turn it is, who goes behind the others then."""
        if not self._waiting:
            return None
        user_id, runs = self._waiting.popitem(last=False)
        newcomer = runs.popleft()
        if runs:
            self._waiting[user_id] = runs
        return newcomer


class PlainRoom:
    """A room in another order, behind which the queue is kept as shallow."""

    def __init__(self, redis: Redis, model: str, tier: str, order: Order) -> None:
        self._redis, self._queue, self._order = redis, queue_name(model, tier), order

    def release(
        self,
        lookahead: int,
        newcomers: Iterable[Newcomer] = (),
        departed: Sequence[UUID] = (),  # noqa: ARG002  (as of `Room.release`)
        corrections: Sequence[Correction] = (),  # noqa: ARG002
        report: Report | None = None,  # noqa: ARG002
    ) -> Release:
        """As `Room.release`; no estimate is kept."""
        for each in newcomers:
            self._order.add(each)
        space = lookahead - int(self._redis.llen(self._queue))
        taken = [newcomer for _ in range(space) if (newcomer := self._order.take()) is not None]
        return Release([Departure(newcomer.run_id, newcomer.cost) for newcomer in taken], {})
