"""One subscription to Redis for all feeds that a web process has open."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.exceptions import RedisError

from chat import feed
from chat.streaming import frames
from chat.streaming.inbox import Inbox
from inference.servers import listening

logger = logging.getLogger(__name__)

# How long a feed waits to be heard before it opens all the same: then Redis is away.
JOIN_PATIENCE_S = 2.0
# After this much silence Redis is asked whether it is there: a connection can die without a word.
SILENCE_S = 10.0
REPLY_PATIENCE_S = 5.0
MAX_BACKOFF_S = 2.0
MISSED = frames.unnumbered("missed", {})


@dataclass(frozen=True, slots=True)
class Told:
    """An event of the feed, as SSE bytes."""

    frame: bytes


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """The session of that digest was signed out."""

    session: str


Note = Told | SessionEnded


@dataclass(eq=False, slots=True)
class _Channel:
    """A user's channel: who reads it here, what Redis was asked and has confirmed, whether readers missed something."""

    name: str
    readers: set[Inbox[Note]] = field(default_factory=set)
    is_asked: bool = False
    heard: asyncio.Event = field(default_factory=asyncio.Event)
    has_gap: bool = False


class Feeds:
    """Hears the channels of all users who have a feed open here. Made and used on one event loop.

    When Redis was away it comes back by itself; readers are then told that they may have missed something.
    """

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._channels: dict[str, _Channel] = {}
        # Whose readers came or went: with many channels, nobody looks at all of them for one.
        self._changed: set[str] = set()
        self._change = asyncio.Event()
        self._is_closed = False
        self._backoff_s = 0.0
        self._hearing: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to hear."""
        self._hearing = asyncio.create_task(self._hear_until_closed(), name="feeds")

    async def stop(self) -> None:
        """Stop hearing; readers are told to leave."""
        self.close()
        if self._hearing:
            self._hearing.cancel()
            await asyncio.gather(self._hearing, return_exceptions=True)

    def close(self) -> None:
        """End every feed, and those to come."""
        self._is_closed = True
        for channel in self._channels.values():
            for inbox in channel.readers:
                inbox.end()

    async def join(self, user_id: UUID) -> Inbox[Note]:
        """An inbox for what the user is told from now on; while Redis is away, from when it is back."""
        name = feed.channel(user_id)
        channel = self._channels.setdefault(name, _Channel(name))
        inbox = Inbox[Note]()
        channel.readers.add(inbox)
        self._note_change(channel)
        if self._is_closed:
            inbox.end()
            return inbox
        try:
            async with asyncio.timeout(JOIN_PATIENCE_S):
                await channel.heard.wait()
        except TimeoutError:
            channel.has_gap = True
        return inbox

    def leave(self, user_id: UUID, inbox: Inbox[Note]) -> None:
        """Stop reading; leaving twice is no error."""
        if channel := self._channels.get(feed.channel(user_id)):
            channel.readers.discard(inbox)
            self._note_change(channel)

    def _note_change(self, channel: _Channel) -> None:
        self._changed.add(channel.name)
        self._change.set()

    async def _hear_until_closed(self) -> None:
        while not self._is_closed:
            await asyncio.sleep(self._backoff_s)
            await self._change.wait()  # without a reader there is nothing to hear
            try:
                async with listening(self._redis) as pubsub, asyncio.TaskGroup() as both:
                    both.create_task(self._keep_subscribed(pubsub))
                    both.create_task(self._hear(pubsub))
            except* (RedisError, OSError) as failures:
                self._lose(failures.exceptions)
            except* Exception as failures:
                # A process that heard nothing more would leave its pages stale, whatever it was.
                logger.exception("feed.broke")
                self._lose(failures.exceptions)

    def _lose(self, failures: Sequence[BaseException]) -> None:
        """The subscription is gone: ask for every channel anew."""
        self._backoff_s = min(MAX_BACKOFF_S, 2 * self._backoff_s or 0.1)
        logger.warning("feed.lost %s, again in %.1f s", type(failures[0]).__name__, self._backoff_s)
        for channel in self._channels.values():
            channel.has_gap = channel.has_gap or channel.heard.is_set()
            channel.is_asked = False
            channel.heard.clear()
            self._note_change(channel)

    async def _keep_subscribed(self, pubsub: PubSub) -> None:
        while not self._is_closed:
            self._change.clear()
            changed, self._changed = self._changed, set()
            await self._subscribe(pubsub, [self._channels[name] for name in changed if name in self._channels])
            await self._change.wait()

    async def _subscribe(self, pubsub: PubSub, changed: Sequence[_Channel]) -> None:
        fresh = [channel for channel in changed if channel.readers and not channel.is_asked]
        # One that Redis has yet to confirm waits: its confirmation must not be taken for that of the next reader.
        left = [c for c in changed if not c.readers and (c.heard.is_set() or not c.is_asked)]
        for channel in fresh:
            channel.is_asked = True
        for channel in left:
            del self._channels[channel.name]
        if fresh:
            await pubsub.subscribe(*(channel.name for channel in fresh))
        if asked := [channel.name for channel in left if channel.is_asked]:
            await pubsub.unsubscribe(*asked)

    async def _hear(self, pubsub: PubSub) -> None:
        while not self._is_closed:
            message = await pubsub.get_message(timeout=SILENCE_S)
            if message is None:
                await pubsub.ping()
                message = await pubsub.get_message(timeout=REPLY_PATIENCE_S)
            if message is None:
                raise TimeoutError("Redis does not answer")
            self._take(message)

    def _take(self, message: Mapping[str, Any]) -> None:
        channel = self._channels.get((message["channel"] or b"").decode())
        if channel is None:
            return
        match message["type"]:
            case "subscribe":
                self._confirm(channel)
            case "message":
                self._hand_out(channel, message["data"])

    def _confirm(self, channel: _Channel) -> None:
        self._backoff_s = 0.0
        channel.heard.set()
        if channel.has_gap:
            channel.has_gap = False
            self._tell(channel, Told(MISSED))
        self._note_change(channel)

    def _hand_out(self, channel: _Channel, message: bytes) -> None:
        try:
            name, data = feed.read(message)
        except (TypeError, ValueError):
            logger.exception("feed.unreadable channel=%s", channel.name)
            return
        is_end = name == feed.SignedOut.name
        self._tell(channel, SessionEnded(data["session"]) if is_end else Told(frames.unnumbered(name, data)))

    def _tell(self, channel: _Channel, note: Note) -> None:
        for inbox in list(channel.readers):
            if not inbox.put(note):
                logger.info("feed.reader_dropped channel=%s", channel.name)
                channel.readers.discard(inbox)
                inbox.end()
