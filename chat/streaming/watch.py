"""What streams do not say: a run's place in its room, and that a silent run's row has ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from uuid import UUID

from chat.streaming.hub import Hub, Live, Moved, RowEnded

logger = logging.getLogger(__name__)

INTERVAL_S = 2.0

Positions = Callable[[Sequence[Live]], Awaitable[Mapping[UUID, int | None]]]
EndedAmong = Callable[[Collection[UUID]], Awaitable[Collection[UUID]]]


class Watch:
    """Asks for all readers of a process together, at most one question of each kind in `INTERVAL_S`."""

    def __init__(self, hub: Hub, positions: Positions, ended_among: EndedAmong) -> None:
        self._hub = hub
        self._positions = positions
        self._ended_among = ended_among

    async def run(self) -> None:
        """Watch until the hub is closed."""
        while not self._hub.is_closed:
            await asyncio.sleep(INTERVAL_S)
            for look in (self._look_at_room, self._look_at_rows):
                try:
                    await look()
                except Exception:
                    # Broker or database away: readers wait, and the next look may find them back.
                    logger.warning("stream.watch_failed %s", look.__name__, exc_info=True)

    async def _look_at_room(self) -> None:
        if waiting := self._hub.unstarted():
            for run_id, position in (await self._positions(waiting)).items():
                self._hub.tell(run_id, Moved(position))

    async def _look_at_rows(self) -> None:
        if silent := [live.run_id for live in self._hub.silent(INTERVAL_S)]:
            for run_id in await self._ended_among(silent):
                self._hub.tell(run_id, RowEnded())
