"""Places in the rooms and how long they will take, asked for many runs at once and without a thread."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from uuid import UUID

from redis.asyncio import Redis
from redis.exceptions import RedisError

from chat.streaming.hub import Live, Wait
from scheduler.estimates import Drain
from scheduler.room import POSITION, drain_key, position_keys

logger = logging.getLogger(__name__)

GONE = Wait()


class RoomPositions:
    """How many runs the workers take up to each run, itself included, and about when; `GONE` where it has left."""

    def __init__(self, broker: Redis) -> None:
        self._broker = broker

    async def __call__(self, waiting: Sequence[Live]) -> Mapping[UUID, Wait]:
        """One round trip for all. With the broker away nobody's place is known, which is no reason to refuse."""
        try:
            return await self._ask(waiting)
        except (RedisError, OSError):
            logger.info("stream.positions_unknown runs=%d", len(waiting))
            return {live.run_id: GONE for live in waiting}

    async def _ask(self, waiting: Sequence[Live]) -> Mapping[UUID, Wait]:
        models = list(dict.fromkeys(live.model for live in waiting))
        async with self._broker.pipeline(transaction=False) as pipe:
            for live in waiting:
                keys = position_keys(live.model, live.tier)
                pipe.eval(POSITION, len(keys), *keys, str(live.run_id))
            for model in models:
                pipe.hgetall(drain_key(model))
            pipe.time()
            *answers, clock = await pipe.execute()
        places, rows = answers[: len(waiting)], answers[len(waiting) :]
        drains = {model: Drain.read(row, clock) for model, row in zip(models, rows, strict=True)}
        return {
            live.run_id: GONE if place is None else Wait(place, drains[live.model].eta_s(live.tier, place))
            for live, place in zip(waiting, places, strict=True)
        }
