"""Places in the rooms, asked for many runs at once and without a thread."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from uuid import UUID

from redis.asyncio import Redis
from redis.exceptions import RedisError

from chat.streaming.hub import Live
from scheduler.room import POSITION, queue_name, room_key

logger = logging.getLogger(__name__)


class RoomPositions:
    """How many runs the workers take up to each run, itself included; None where it has left the room."""

    def __init__(self, broker: Redis) -> None:
        self._broker = broker

    async def __call__(self, waiting: Sequence[Live]) -> Mapping[UUID, int | None]:
        """One round trip for all. With the broker away nobody's place is known, which is no reason to refuse."""
        try:
            async with self._broker.pipeline(transaction=False) as pipe:
                for live in waiting:
                    keys = room_key(live.model, live.tier), queue_name(live.model, live.tier)
                    pipe.eval(POSITION, len(keys), *keys, str(live.run_id))
                answers = await pipe.execute()
        except (RedisError, OSError):
            logger.info("stream.positions_unknown runs=%d", len(waiting))
            answers = [None] * len(waiting)
        return dict(zip((live.run_id for live in waiting), answers, strict=True))
