"""One reader's way through one run: what the stream holds, what the hub brings, what only Postgres knows."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence

from django.conf import settings
from django.db import DatabaseError, InterfaceError
from redis.asyncio import Redis
from redis.exceptions import RedisError

from chat.models import Run
from chat.streaming import frames, rows
from chat.streaming.hub import Arrived, Dropped, Hub, Live, Moved, Note, RowEnded, Subscription
from chat.streaming.place import Gap, Place, conclude, step
from chat.streaming.watch import Positions
from inference.streams import Ended, Entry, read_after

logger = logging.getLogger(__name__)

PAGE_ENTRIES = 1000


async def backlog(redis: Redis, live: Live, place: Place) -> list[Entry]:
    """Everything the run's stream holds behind the reader's place."""
    entries: list[Entry] = []
    after = place.entry
    while page := await read_after(redis, live.run_id, after, PAGE_ENTRIES):
        entries += page
        after = page[-1].id
        if len(page) < PAGE_ENTRIES:
            break
    return entries


class Follower:
    """Tells one reader of one run, from `place` on, every character once and the end once."""

    def __init__(self, redis: Redis, hub: Hub, positions: Positions, live: Live, place: Place) -> None:
        self._redis = redis
        self._hub = hub
        self._positions = positions
        self._live = live
        self._place = place
        self._position: int | None = None
        self._outbox: list[bytes] = []
        self._is_lost = False
        self._is_over = False
        self._beat_at = 0.0

    async def events(self, entries: Sequence[Entry], *, is_live: bool) -> AsyncIterator[bytes]:
        """SSE bytes: first `entries`, the stream's backlog, then what comes while the run is live, to its end."""
        try:
            await self._advance(entries)
            if not (is_live or self._is_over):
                await self._conclude()
            if not self._is_over and is_live:
                async with contextlib.aclosing(self._live_events()) as live_events:
                    async for told in live_events:
                        yield told
            if self._outbox:
                yield self._emptied()
        except Run.DoesNotExist:
            logger.info("stream.run_deleted run=%s", self._live.run_id)
        except (DatabaseError, InterfaceError):
            # The response ends without a terminal event: the reader comes back and goes on.
            logger.warning("stream.database_failed run=%s", self._live.run_id)

    async def _live_events(self) -> AsyncGenerator[bytes, None]:
        subscription = await self._hub.join(self._live, self._place.entry)
        self._beat_at = time.monotonic() + settings.HEARTBEAT_S
        try:
            await self._catch_up(subscription)
            while not self._is_over:
                if self._outbox:
                    yield self._emptied()
                await self._heed(await self._next(subscription))
        finally:
            self._hub.leave(subscription)

    async def _catch_up(self, subscription: Subscription) -> None:
        if subscription.since and not self._place.has_passed(subscription.since):
            # A failure here leaves a gap, which the next entry shows.
            with contextlib.suppress(RedisError, OSError):
                await self._advance(await backlog(self._redis, self._live, self._place))
        if self._place.entry is None:
            self._tell_position((await self._positions([self._live]))[self._live.run_id])

    async def _next(self, subscription: Subscription) -> Note | None:
        try:
            async with asyncio.timeout(max(0.0, self._beat_at - time.monotonic())):
                return await subscription.next()
        except TimeoutError:
            return None

    async def _heed(self, note: Note | None) -> None:
        match note:
            case None:
                self._beat_at = time.monotonic() + settings.HEARTBEAT_S
                self._outbox.append(frames.HEARTBEAT)
            case Arrived(entries):
                await self._advance(entries)
            case Moved(position):
                if self._place.entry is None and position != self._position:
                    self._tell_position(position)
            case RowEnded():
                await self._conclude()
            case Dropped():
                self._is_over = True

    def _tell_position(self, position: int | None) -> None:
        self._position = position
        self._outbox.append(frames.queued(position, self._live.tier))

    async def _advance(self, entries: Sequence[Entry]) -> None:
        unread = entries if self._is_lost else self._taken(entries)
        if unread and not self._is_lost:
            unread = await self._bridged(unread)
        if any(isinstance(entry.event, Ended) for entry in unread):
            await self._conclude()

    def _taken(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Tell the reader of `entries` up to a gap; returns those behind it."""
        for index, entry in enumerate(entries):
            if self._place.has_passed(entry.id):
                continue
            try:
                self._place, told = step(self._place, entry)
            except Gap:
                return entries[index:]
            if told:
                self._outbox.append(frames.frame(self._place, told))
            self._is_over = self._is_over or isinstance(told, Ended)
        return ()

    async def _bridged(self, unread: Sequence[Entry]) -> Sequence[Entry]:
        """Read the stream once more; where it has lost entries, the reader waits for the whole text in Postgres."""
        try:
            again = await backlog(self._redis, self._live, self._place)
        except (RedisError, OSError):
            return unread
        unread = self._taken(again)
        self._is_lost = bool(unread)
        if self._is_lost:
            logger.warning("stream.gap run=%s behind=%s", self._live.run_id, self._place)
        return unread

    async def _conclude(self) -> None:
        ending = await rows.ending(self._live.run_id)
        if ending is None:
            return
        for place, event in conclude(self._place, ending.attempt, ending.text, ending.ended):
            self._outbox.append(frames.frame(place, event))
        self._is_over = True

    def _emptied(self) -> bytes:
        told = b"".join(self._outbox)
        self._outbox.clear()
        return told
