"""What streams do not say: a run's place in its room, that a silent run's row has ended, text that streams lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from uuid import UUID

from django.db import DatabaseError, InterfaceError
from redis.exceptions import RedisError

from chat.streaming.hub import Live, Moved, PutBy, RowEnded, Wait
from chat.streaming.sharded_hub import AnyHub
from chat.streaming.written import Written

logger = logging.getLogger(__name__)

INTERVAL_S = 2.0
# With the time that a look takes, no more than two seconds pass between one and the next.
PLACES_INTERVAL_S = 1.8
LOST_INTERVAL_S = 1.0

Positions = Callable[[Sequence[Live]], Awaitable[Mapping[UUID, Wait]]]
EndedAmong = Callable[[Collection[UUID]], Awaitable[Collection[UUID]]]
WrittenOf = Callable[[Collection[UUID]], Awaitable[Mapping[UUID, Written]]]


class Watch:
    """Asks for all readers of a process together, one question of a kind at a time, each after a pause."""

    def __init__(self, hub: AnyHub, positions: Positions, ended_among: EndedAmong, written_of: WrittenOf) -> None:
        self._hub = hub
        self._positions = positions
        self._ended_among = ended_among
        self._written_of = written_of

    async def run(self) -> None:
        """Watch until the hub is closed."""
        await asyncio.gather(
            self._keep_looking(self._look_at_room, PLACES_INTERVAL_S),
            self._keep_looking(self._look_at_rows, INTERVAL_S),
            self._keep_looking(self._look_for_lost, LOST_INTERVAL_S),
        )

    async def _keep_looking(self, look: Callable[[], Awaitable[None]], interval_s: float) -> None:
        while not self._hub.is_closed:
            await asyncio.sleep(interval_s)
            try:
                await look()
            except Exception as failure:
                # Broker or database away: readers wait, and the next look may find them back.
                is_known = isinstance(failure, RedisError | DatabaseError | InterfaceError | OSError)
                name, error = getattr(look, "__name__", look), type(failure).__name__
                logger.warning("stream.watch_failed look=%s error=%s", name, error, exc_info=not is_known)

    async def _look_at_room(self) -> None:
        if waiting := self._hub.unstarted():
            for run_id, wait in (await self._positions(waiting)).items():
                self._hub.tell(run_id, Moved(wait))

    async def _look_at_rows(self) -> None:
        if silent := [live.run_id for live in self._hub.silent(INTERVAL_S)]:
            for run_id in await self._ended_among(silent):
                self._hub.tell(run_id, RowEnded())

    async def _look_for_lost(self) -> None:
        if lost := self._hub.lost():
            for run_id, written in (await self._written_of(lost)).items():
                self._hub.tell(run_id, PutBy(written))
