"""One reader's way through one run: what the stream holds, what the hub brings, what only Postgres knows."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence

from django.conf import settings
from django.db import DatabaseError, InterfaceError
from redis.asyncio import Redis
from redis.exceptions import RedisError

from chat.models import Run
from chat.streaming import frames, rows
from chat.streaming.hub import Arrived, Beat, Live, Moved, Note, PutBy, RowEnded, Subscription, Wait
from chat.streaming.inbox import Dropped
from chat.streaming.place import Place, bridge, conclude
from chat.streaming.sharded_hub import AnyHub
from chat.streaming.walk import Walk, walk
from chat.streaming.watch import Positions
from chat.streaming.written import Written
from inference.streams import Entry, Event, read_rest

logger = logging.getLogger(__name__)


async def backlog(redis: Redis, live: Live, place: Place) -> list[Entry]:
    """Everything the run's stream holds behind the reader's place."""
    return await read_rest(redis, live.run_id, place.entry)


@contextlib.contextmanager
def beating(subscription: Subscription) -> Iterator[None]:
    """Leave a `Beat` in the inbox from time to time: one timer for the stream, not one for each event."""
    loop = asyncio.get_running_loop()
    timer: asyncio.TimerHandle

    def beat() -> None:
        nonlocal timer
        subscription.put(Beat())
        timer = loop.call_later(settings.HEARTBEAT_S, beat)

    timer = loop.call_later(settings.HEARTBEAT_S, beat)
    try:
        yield
    finally:
        timer.cancel()


class Follower:
    """Tells one reader of one run, from `place` on, every character once and the end once.

    A reader is lost while the stream lacks what comes next: it is told what the run's checkpoints have of that, each
    time the watch has read them, until an entry joins on.
    """

    def __init__(self, redis: Redis, hub: AnyHub, positions: Positions, live: Live, place: Place) -> None:
        self._redis = redis
        self._hub = hub
        self._positions = positions
        self._live = live
        self._place = place
        self._wait = Wait()
        self._outbox: list[bytes] = []
        self._is_lost = False
        self._is_over = False

    async def events(
        self, entries: Sequence[Entry], *, is_live: bool, is_lost: bool = False
    ) -> AsyncGenerator[bytes, None]:
        """SSE bytes: first `entries`, the stream's backlog, then what comes while the run is live, to its end."""
        self._is_lost = is_lost
        try:
            await self._advance(walk(self._place, entries))
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
        try:
            await self._catch_up(subscription)
            with beating(subscription):
                while not self._is_over:
                    if self._outbox and subscription.is_empty:
                        yield self._emptied()
                    subscription.is_lost = self._is_lost
                    await self._heed(await subscription.next())
        finally:
            self._hub.leave(subscription)

    async def _catch_up(self, subscription: Subscription) -> None:
        if subscription.since and not self._place.has_passed(subscription.since):
            # A failure here leaves a gap, which the next entry shows.
            with contextlib.suppress(RedisError, OSError):
                await self._advance(walk(self._place, await backlog(self._redis, self._live, self._place)))
        if self._place.entry is None:
            self._tell_wait((await self._positions([self._live]))[self._live.run_id])

    async def _heed(self, note: Note | Dropped) -> None:
        match note:
            case Arrived():
                await self._advance(note.walked(self._place))
            case Beat():
                self._outbox.append(frames.HEARTBEAT)
            case Moved(wait):
                if self._place.entry is None and wait != self._wait:
                    self._tell_wait(wait)
            case PutBy(written):
                if self._is_lost:
                    await self._bridge(written)
            case RowEnded():
                await self._conclude()
            case Dropped():
                self._is_over = True

    def _tell_wait(self, wait: Wait) -> None:
        self._wait = wait
        self._outbox.append(frames.queued(wait, self._live.tier))

    async def _advance(self, ahead: Walk) -> None:
        before = self._place
        self._take(ahead)
        if ahead.unread and (not self._is_lost or ahead.lacks_end):
            await self._mend()
        elif self._place != before:
            self._is_lost = bool(ahead.unread)

    def _take(self, ahead: Walk) -> None:
        self._place = ahead.end
        self._is_over = self._is_over or ahead.end.is_at_end
        if ahead.told:
            self._outbox.append(ahead.told)

    async def _mend(self) -> None:
        """Read the stream once more, and Postgres where it has lost entries."""
        await self._rejoin()
        if self._is_lost:
            logger.info("stream.gap run=%s behind=%s", self._live.run_id, self._place)
            # With the database away the watch asks again, for as long as the reader is lost.
            with contextlib.suppress(DatabaseError, InterfaceError):
                await self._bridge(await rows.written(self._live.run_id))

    async def _rejoin(self) -> None:
        self._is_lost = True
        with contextlib.suppress(RedisError, OSError):
            behind = walk(self._place, await backlog(self._redis, self._live, self._place))
            self._take(behind)
            self._is_lost = behind.end == behind.start or bool(behind.unread)

    async def _bridge(self, written: Written) -> None:
        if written.ended:
            self._tell(conclude(self._place, written, written.ended))
            self._is_over = True
        else:
            self._tell(bridge(self._place, written))
            await self._rejoin()

    async def _conclude(self) -> None:
        written = await rows.written(self._live.run_id)
        if written.ended:
            await self._bridge(written)

    def _tell(self, told: Iterable[tuple[Place, Event | None]]) -> None:
        for self._place, event in told:
            if event:
                self._outbox.append(frames.frame(self._place, event))

    def _emptied(self) -> bytes:
        told = b"".join(self._outbox)
        self._outbox.clear()
        return told
