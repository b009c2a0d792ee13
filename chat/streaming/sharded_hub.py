"""The readers of a cluster's streams: a hub for each tag, since one XREAD stays within one slot."""

from __future__ import annotations

import asyncio
from uuid import UUID

from redis.asyncio import Redis

from chat.streaming.hub import Hub, Live, Note, Subscription
from inference.servers import cluster_of
from inference.streams import EntryId, shard

# A read costs a sixth of a millisecond or more, whatever it brings: a full house makes 640 a second, and no more.
MAX_PAUSE_S = 0.1


class ShardedHub:
    """What `Hub` is, over at most as many blocked reads as there are tags: those of tags that somebody reads."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._hubs: dict[int, Hub] = {}
        self.is_closed = False

    def start(self) -> None:
        """Begin to read; each tag when somebody first reads a run that has it."""

    async def stop(self) -> None:
        """Stop reading; readers are told to leave."""
        self.close()
        await asyncio.gather(*(hub.stop() for hub in self._hubs.values()))

    def close(self) -> None:
        """End every subscription, and those to come."""
        self.is_closed = True
        for hub in self._hubs.values():
            hub.close()

    async def join(self, live: Live, after: EntryId | None) -> Subscription:
        """Follow a run from behind `after` on; where its hub is further already, `since` says so."""
        return await self._of(live.run_id).join(live, after)

    def leave(self, subscription: Subscription) -> None:
        """Stop following; leaving twice is no error."""
        if hub := self._hubs.get(shard(subscription.live.run_id)):
            hub.leave(subscription)

    def silent(self, for_s: float) -> list[Live]:
        """Runs not heard of for `for_s` seconds."""
        return [live for hub in self._hubs.values() for live in hub.silent(for_s)]

    def unstarted(self) -> list[Live]:
        """Runs without any entry so far."""
        return [live for hub in self._hubs.values() for live in hub.unstarted()]

    def lost(self) -> list[UUID]:
        """Runs with a lost reader."""
        return [run_id for hub in self._hubs.values() for run_id in hub.lost()]

    def tell(self, run_id: UUID, note: Note) -> None:
        """Leave a note with every reader of a run; a reader whose inbox is full is dropped."""
        if hub := self._hubs.get(shard(run_id)):
            hub.tell(run_id, note)

    @property
    def readers(self) -> int:
        """How many there are."""
        return sum(hub.readers for hub in self._hubs.values())

    @property
    def reads(self) -> int:
        """How many there were so far."""
        return sum(hub.reads for hub in self._hubs.values())

    def _of(self, run_id: UUID) -> Hub:
        tag = shard(run_id)
        hub = self._hubs.get(tag)
        if hub is None:
            hub = self._hubs[tag] = Hub(self._redis, tag, self._pace)
            if self.is_closed:
                hub.close()
            hub.start()
        return hub

    def _pace(self, answered: int, _asked: int) -> float:
        followed = sum(hub.followed for hub in self._hubs.values())
        return min(MAX_PAUSE_S, 0.001 * answered + 0.0001 * followed)


AnyHub = Hub | ShardedHub


def hub_of(redis: Redis) -> AnyHub:
    """One that reads the streams where `redis` finds them."""
    return ShardedHub(redis) if cluster_of(redis) else Hub(redis)
