"""One reader of Redis for all the streams that a web process has open."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast
from uuid import UUID, uuid4

from redis.asyncio import Redis
from redis.exceptions import RedisError

from chat.streaming.inbox import Inbox
from chat.streaming.place import Place
from chat.streaming.walk import Walk, walk
from chat.streaming.written import Written
from inference.servers import cluster_of
from inference.streams import Entry, EntryId, entry, hub_key, run_key

logger = logging.getLogger(__name__)

Rows = list[tuple[bytes, dict[bytes, bytes]]]
# Of the runs asked for in a read, how many had news, to seconds.
Pace = Callable[[int, int], float]

START = "0-0"  # before any entry
# Below redis-py's socket timeout of 5 s, at which a blocked read would count as a broken connection.
BLOCK_MS = 2000
# Longest pause between reads: 40 a second at most, however many runs there are.
MAX_PAUSE_S = 0.025
# Behind by seconds, a thousand runs had answers of tens of megabytes, which took longer than a reply may: for good.
ENTRIES_A_READ = 5000
ENTRIES_A_RUN = 5  # at least
MAX_BACKOFF_S = 1.0
CONTROL_TTL_S = 3600


@dataclass(slots=True)
class Arrived:
    """New entries of the run, oldest first."""

    entries: tuple[Entry, ...]
    _walk: Walk | None = field(default=None, init=False, compare=False)

    def walked(self, start: Place) -> Walk:
        """What they are to a reader at `start`: worked out once for all who are there."""
        if self._walk is None or self._walk.start != start:
            self._walk = walk(start, self.entries)
        return self._walk


@dataclass(frozen=True, slots=True)
class Wait:
    """A run's place in its room, from 1, and about how long until a worker takes it, in whole seconds.

    There is no place once it has left the room, and no estimate then or while nothing was measured.
    """

    position: int | None = None
    eta_s: int | None = None


@dataclass(frozen=True, slots=True)
class Moved:
    """The run's place or the estimate is another."""

    wait: Wait


@dataclass(frozen=True, slots=True)
class RowEnded:
    """The run's row is terminal, whatever its stream says."""


@dataclass(frozen=True, slots=True)
class Beat:
    """It is time for a sign of life."""


@dataclass(frozen=True, slots=True)
class PutBy:
    """What Postgres has of the run, for its lost readers."""

    written: Written


Note = Arrived | Beat | Moved | PutBy | RowEnded


@dataclass(frozen=True, slots=True)
class Live:
    """What waiting for a run needs to know of it."""

    run_id: UUID
    model: str
    tier: str


class Subscription(Inbox[Note]):
    """One reader's inbox; `since` is the last entry that the hub had read when it joined.

    `is_lost` says that the stream lacks what the reader needs next.
    """

    def __init__(self, live: Live, since: EntryId | None) -> None:
        super().__init__()
        self.live = live
        self.since = since
        self.is_lost = False


@dataclass(slots=True)
class _Followed:
    """A run that somebody in this process reads."""

    live: Live
    cursor: EntryId | None
    raw_cursor: bytes  # the same as Redis has it: it is asked for hundreds of them again and again
    heard_at: float
    readers: set[Subscription] = field(default_factory=set)


def alone(answered: int, asked: int) -> float:
    """How long to pause after a read: a lone run's delta finds the reader waiting; a full house is read in batches."""
    return min(MAX_PAUSE_S, 0.001 * answered + 0.0001 * asked)


class Hub:
    """Reads the streams of all followed runs with one blocking XREAD and hands entries to their readers.

    In a cluster the streams of one `shard`: `ShardedHub` has one of these for each. `pace` tells how long reads pause.
    Made and used on one event loop. In an outage of Redis it comes back by itself and goes on from where it was.
    """

    def __init__(self, redis: Redis, shard: int | None = None, pace: Pace = alone) -> None:
        self._redis = redis
        self._followed: dict[bytes, _Followed] = {}
        self._control = hub_key(uuid4(), shard).encode()
        self._pace = pace
        self._control_cursor = START.encode()
        self._somebody = asyncio.Event()
        self._is_blocked = False
        self._is_closed = False
        self._reader: asyncio.Task[None] | None = None
        self.reads = 0

    def start(self) -> None:
        """Begin to read."""
        self._reader = asyncio.create_task(self._read_until_closed(), name="hub-reader")

    @property
    def is_closed(self) -> bool:
        """Whether it has sent everybody away."""
        return self._is_closed

    async def stop(self) -> None:
        """Stop reading; readers are told to leave."""
        self.close()
        self._somebody.set()
        if self._reader:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)

    def close(self) -> None:
        """End every subscription, and those to come."""
        self._is_closed = True
        for followed in list(self._followed.values()):
            self._end_all(followed)

    async def join(self, live: Live, after: EntryId | None) -> Subscription:
        """Follow a run from behind `after` on; where the hub is further already, `since` says so."""
        key = run_key(live.run_id).encode()
        followed = self._followed.get(key)
        if followed is None:
            followed = self._followed[key] = _Followed(live, after, str(after or START).encode(), time.monotonic())
        subscription = Subscription(live, followed.cursor)
        followed.readers.add(subscription)
        self._somebody.set()
        if self._is_closed:
            self._drop(subscription)
        else:
            await self._wake()
        return subscription

    def leave(self, subscription: Subscription) -> None:
        """Stop following; leaving twice is no error."""
        key = run_key(subscription.live.run_id).encode()
        if followed := self._followed.get(key):
            followed.readers.discard(subscription)
            if not followed.readers:
                del self._followed[key]

    @property
    def readers(self) -> int:
        """How many there are."""
        return sum(len(followed.readers) for followed in self._followed.values())

    @property
    def followed(self) -> int:
        """How many runs somebody reads."""
        return len(self._followed)

    def silent(self, for_s: float) -> list[Live]:
        """Runs not heard of for `for_s` seconds."""
        since = time.monotonic() - for_s
        return [followed.live for followed in self._followed.values() if followed.heard_at <= since]

    def unstarted(self) -> list[Live]:
        """Runs without any entry so far."""
        return [followed.live for followed in self._followed.values() if followed.cursor is None]

    def lost(self) -> list[UUID]:
        """Runs with a lost reader."""
        return [
            followed.live.run_id
            for followed in self._followed.values()
            if any(reader.is_lost for reader in followed.readers)
        ]

    def tell(self, run_id: UUID, note: Note) -> None:
        """Leave a note with every reader of a run; a reader whose inbox is full is dropped."""
        if followed := self._followed.get(run_key(run_id).encode()):
            self._tell(followed, note)

    def _tell(self, followed: _Followed, note: Note) -> None:
        for subscription in list(followed.readers):
            if not subscription.put(note):
                logger.info("stream.reader_dropped run=%s", followed.live.run_id)
                self._drop(subscription)

    def _drop(self, subscription: Subscription) -> None:
        subscription.end()
        self.leave(subscription)

    def _end_all(self, followed: _Followed) -> None:
        for subscription in list(followed.readers):
            self._drop(subscription)

    async def _wake(self) -> None:
        # A blocked XREAD cannot gain keys: an entry in our own stream ends it.
        if not self._is_blocked:
            return
        self._is_blocked = False
        try:
            async with self._redis.pipeline(transaction=False) as pipe:
                pipe.xadd(self._control, {"w": ""}, maxlen=1, approximate=False)
                pipe.expire(self._control, CONTROL_TTL_S)
                await pipe.execute()
        except (RedisError, OSError):
            logger.info("stream.wake_failed")  # the read ends by itself within BLOCK_MS

    async def _read_until_closed(self) -> None:
        backoff_s = 0.0
        # Not for ever and a cancel: one that comes amid a lost connection was seen to end as a RedisError.
        while not self._is_closed:
            await asyncio.sleep(backoff_s)
            await self._until_somebody_reads()
            try:
                await asyncio.sleep(await self._read())
                backoff_s = 0.0
            except Exception as failure:
                # Whatever it was: a reader that dies leaves every stream of this process silent.
                backoff_s = min(MAX_BACKOFF_S, 2 * backoff_s or 0.1)
                known = isinstance(failure, RedisError | OSError)
                logger.warning(
                    "stream.read_failed %s, again in %.1f s", type(failure).__name__, backoff_s, exc_info=not known
                )

    async def _until_somebody_reads(self) -> None:
        if not (self._followed or self._is_closed):
            self._somebody.clear()
            await self._somebody.wait()

    async def _read(self) -> float:
        """Read once and hand out; returns how many seconds to pause, so that many runs share a read."""
        asked = dict(self._followed)
        cursors: dict[Any, Any] = {key: followed.raw_cursor for key, followed in asked.items()}
        answer = await self._blocking_read(cursors | {self._control: self._control_cursor})
        for key, rows in answer:
            if key == self._control:
                self._control_cursor = rows[-1][0]
            # Everybody may have left meanwhile and others come, from another place: this answer is not theirs.
            elif (followed := asked[key]) is self._followed.get(key):
                self._hand_out(followed, rows)
        return self._pace(len(answer), len(asked)) if answer else 0.0

    async def _blocking_read(self, cursors: dict[Any, Any]) -> Sequence[tuple[bytes, Rows]]:
        self._is_blocked = True
        try:
            count = max(ENTRIES_A_RUN, ENTRIES_A_READ // len(cursors))
            if cluster := cluster_of(self._redis):
                answer = await cluster.read(cursors, count, BLOCK_MS)
            else:
                answer = await self._redis.xread(cursors, count=count, block=BLOCK_MS)
        finally:
            self._is_blocked = False
        self.reads += 1
        return cast(Sequence[tuple[bytes, Rows]], answer)

    def _hand_out(self, followed: _Followed, rows: Rows) -> None:
        try:
            entries = tuple(entry(raw_id, raw) for raw_id, raw in rows)
        except (KeyError, ValueError):
            logger.exception("stream.unreadable run=%s", followed.live.run_id)
            self._end_all(followed)
            return
        followed.cursor, followed.raw_cursor = entries[-1].id, rows[-1][0]
        followed.heard_at = time.monotonic()
        self._tell(followed, Arrived(entries))
