"""The one writer of a worker process: text of all its runs, coalesced and pipelined into their Redis Streams."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, cast
from uuid import UUID

from redis.asyncio import Redis
from redis.exceptions import RedisError, ResponseError

from inference.streams import (
    ENDED_TTL_S,
    MAX_ENTRIES,
    RUNNING_TTL_S,
    Delta,
    Ended,
    EntryId,
    Event,
    Started,
    fields,
    run_key,
)

logger = logging.getLogger(__name__)

WINDOW_S = 0.03
LIMIT_AGAIN_S = 60.0
BACKOFF_MIN_S = 0.05
BACKOFF_MAX_S = 1.0
# The rows are the record: with Redis away a run goes on, and its readers are served from the rows.
PATIENCE_S = 2.0
REFUSAL = "equal or smaller than the target stream top item"


class Fenced(Exception):
    """A newer attempt writes this run's stream: stop, and publish nothing."""


@dataclass(frozen=True, slots=True)
class Append:
    """One entry on its way, sent with the same id until Redis has it."""

    key: str
    id: EntryId
    event: Event
    ttl_s: int | None  # how long the stream shall live from this entry on at most; None leaves that as it is


class RunStream:
    """What one attempt tells its readers. Made by `StreamWriter.open`, used on the writer's event loop.

    Entries go out strictly one after the other; while one is on its way, new text gathers in the next. So a refused id
    which is the stream's newest is ours, its reply lost; behind any other a newer attempt stands.
    """

    def __init__(self, writer: StreamWriter, run_id: UUID, attempt: int) -> None:
        self._writer = writer
        self._run_id = run_id
        self._key = run_key(run_id)
        self._attempt = attempt
        self._seq = 0
        self._offset = 0
        self._text: list[str] = []
        self._token_ids: list[int] = []
        self._events: deque[Event] = deque()
        self._on_its_way: Append | None = None
        self._has_spoken = False
        self._limited_until = 0.0
        self._fenced = False
        self._settled = asyncio.Event()

    def push(self, text: str, token_ids: Sequence[int]) -> None:
        """Add text and the ids it came from; ids without text wait for text. Never blocks. Raises `Fenced`."""
        self._refuse_if_fenced()
        self._token_ids.extend(token_ids)
        if not text:
            return
        self._text.append(text)
        self._settled.clear()
        self._writer.schedule(self, at_once=not self._has_spoken)
        self._has_spoken = True

    def resume(self, events: Iterable[Event], offset: int) -> None:
        """Tell `events`, by which a later attempt goes on, then text from `offset` on. Raises `Fenced`."""
        self._refuse_if_fenced()
        for event in events:
            self.add(event)
        self._offset = offset

    async def flush(self) -> None:
        """Return when all that was added is in Redis, or Redis is away: it is sent later then. Raises `Fenced`."""
        if not self._settled.is_set():
            self._seal()
            self._writer.schedule(self, at_once=True)
        try:
            async with asyncio.timeout(self._writer.patience_s):
                await self._settled.wait()
        except TimeoutError:
            logger.warning("stream_writer.late run=%s", self._run_id)
        self._refuse_if_fenced()

    async def end(self, ended: Ended) -> None:
        """Flush, then write the terminal entry, unless there is one already. Nothing may be added after it."""
        with contextlib.suppress(Fenced):
            self._refuse_if_fenced()
            self.add(ended)
            await self.flush()

    def add(self, event: Event) -> None:
        """Queue an event behind the text so far."""
        self._seal()
        self._events.append(event)
        self._settled.clear()
        self._writer.schedule(self, at_once=True)

    def _seal(self) -> None:
        """Close the delta that gathers text."""
        if self._text:
            delta = Delta("".join(self._text), self._offset, tuple(self._token_ids))
            self._events.append(delta)
            self._offset = delta.end
            self._text.clear()
            self._token_ids.clear()

    def _refuse_if_fenced(self) -> None:
        if self._fenced:
            raise Fenced(self._run_id)

    # The rest is for the writer.

    def next_append(self) -> Append | None:
        """The entry to send now: the one on its way until Redis has it, then the next."""
        if self._on_its_way is None:
            if not self._events:
                self._seal()
            if self._events:
                event = self._events.popleft()
                self._on_its_way = Append(self._key, self._next_id(event), event, self._ttl_s(event))
        return self._on_its_way

    def _ttl_s(self, event: Event) -> int | None:
        if isinstance(event, Ended):
            return ENDED_TTL_S
        now = time.monotonic()
        if now < self._limited_until:
            return None
        # Again and again: a stream that was lost is made anew by its next entry, which would otherwise stay for good.
        self._limited_until = now + LIMIT_AGAIN_S
        return RUNNING_TTL_S

    def _next_id(self, event: Event) -> EntryId:
        match event:
            case Started():
                return EntryId.fence(self._attempt)
            case Ended():
                return EntryId.terminal(self._attempt)
            case _:
                self._seq += 1
                return EntryId(self._attempt, self._seq)

    def arrived(self) -> None:
        """Redis has the entry that was on its way."""
        self._on_its_way = None
        if not (self._events or self._text):
            self._settled.set()

    def refused(self, top: EntryId) -> None:
        """Redis refused the entry's id: it is there already when it is the stream's newest, else we are fenced off.

        Behind a newest one that is older still, a failover has lost what refused it: then it is sent again.
        """
        if self._on_its_way is not None and top <= self._on_its_way.id:
            if top == self._on_its_way.id:
                self.arrived()
            return
        self._fenced = True
        self._on_its_way = None
        self._events.clear()
        self._text.clear()
        self._settled.set()

    @property
    def is_settled(self) -> bool:
        """Nothing waits to be sent."""
        return self._settled.is_set()

    @property
    def is_pressing(self) -> bool:
        """An event waits, not only text that may gather."""
        return bool(self._events or self._on_its_way)


class StreamWriter:
    """Writes for all runs of the process: one task, one round trip a flush, and in it at most one XADD a run.

    A run's first text goes out at once, later text when the window ends. While Redis is away text gathers, and what was
    sent is sent again under the same id: nothing is lost, nothing doubled. Callers wait `patience_s` for it at most.
    """

    def __init__(self, redis: Redis, window_s: float = WINDOW_S, patience_s: float = PATIENCE_S) -> None:
        self.patience_s = patience_s
        self._redis = redis
        self._window_s = window_s
        self._unsettled: set[RunStream] = set()
        self._urgent: set[RunStream] = set()
        self._wake = asyncio.Event()
        self._window_ends_at = 0.0
        self._pause_s = 0.0
        self._pause_ends_at = 0.0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to write."""
        self._task = asyncio.create_task(self._supervised(), name="stream-writer")

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        assert self._task is not None
        flushes = (stream.flush() for stream in list(self._unsettled))
        await asyncio.gather(*flushes, return_exceptions=True)
        self._task.cancel()
        await asyncio.wait({self._task})

    async def open(self, run_id: UUID, attempt: int, model: str) -> RunStream:
        """Fence off older attempts, and return the stream to write. Raises `Fenced` when a newer one was first."""
        stream = self.begin(run_id, attempt, model)
        await stream.flush()
        return stream

    def begin(self, run_id: UUID, attempt: int, model: str) -> RunStream:
        """`open`, for a caller who has no time to wait: of a newer attempt it learns when it writes."""
        stream = RunStream(self, run_id, attempt)
        stream.add(Started(attempt, model))
        return stream

    def schedule(self, stream: RunStream, at_once: bool) -> None:
        """Send what the stream has, now or when the window ends."""
        wakes = at_once or not self._unsettled
        self._unsettled.add(stream)
        if at_once:
            self._urgent.add(stream)
        if wakes:
            self._wake.set()

    async def _supervised(self) -> None:
        # A writer that died unseen once hung every run of its process (measured, with a killed connection).
        while True:
            try:
                await self._write_for_ever()
            except Exception:
                logger.exception("stream_writer.restarts")
                self._pause()

    async def _write_for_ever(self) -> None:
        while True:
            await self._until_due()
            await self._flush(self._take_due())

    async def _until_due(self) -> None:
        loop = asyncio.get_running_loop()
        while (due_at := self._due_at()) is None or due_at > loop.time():
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(due_at):
                    await self._wake.wait()

    def _due_at(self) -> float | None:
        """When the next flush is due by the loop's clock; None while nothing waits."""
        if not self._unsettled:
            return None
        return max(self._pause_ends_at, 0.0 if self._urgent else self._window_ends_at)

    def _take_due(self) -> list[RunStream]:
        now = asyncio.get_running_loop().time()
        due = self._urgent
        if now >= self._window_ends_at:
            due = self._unsettled
            self._window_ends_at = now + self._window_s
        due, self._urgent = set(due), set()
        return list(due)

    async def _flush(self, streams: Sequence[RunStream]) -> None:
        sent = [(stream, append) for stream in streams if (append := stream.next_append())]
        try:
            await self._send(sent)
        except (RedisError, OSError) as error:
            self._pause()
            logger.warning("stream_writer.away error=%s runs=%d", type(error).__name__, len(sent))
        for stream in streams:
            if stream.is_settled:
                self._unsettled.discard(stream)
            elif stream.is_pressing:
                self._urgent.add(stream)

    def _pause(self) -> None:
        self._pause_s = min(max(2 * self._pause_s, BACKOFF_MIN_S), BACKOFF_MAX_S)
        self._pause_ends_at = asyncio.get_running_loop().time() + self._pause_s

    async def _send(self, sent: Sequence[tuple[RunStream, Append]]) -> None:
        """One round trip. Raises `RedisError` when an entry must be sent again."""
        if not sent:
            return
        replies = await self._append([append for _, append in sent])
        refused = []
        for (stream, append), reply in zip(sent, replies, strict=True):
            if not isinstance(reply, Exception):
                stream.arrived()
            elif _is_refusal(reply):
                refused.append((stream, append))
        await self._settle_refusals(refused)
        failures = [reply for reply in replies if isinstance(reply, Exception) and not _is_refusal(reply)]
        if failures:
            raise failures[0]
        self._pause_s = 0.0

    async def _append(self, appends: Sequence[Append]) -> list[bytes | Exception]:
        pipeline = self._redis.pipeline(transaction=False)
        for append in appends:
            pairs = cast(dict[Any, Any], fields(append.event))  # redis-py's key type is invariant
            pipeline.xadd(append.key, pairs, id=str(append.id), maxlen=MAX_ENTRIES)
        for append in appends:
            if append.ttl_s is not None:
                pipeline.expire(append.key, append.ttl_s, lt=True)  # a refused entry must not lengthen it
        replies: list[bytes | Exception] = await pipeline.execute(raise_on_error=False)
        return replies[: len(appends)]

    async def _settle_refusals(self, refused: Sequence[tuple[RunStream, Append]]) -> None:
        if not refused:
            return
        pipeline = self._redis.pipeline(transaction=False)
        for _, append in refused:
            pipeline.xrevrange(append.key, count=1)
        for (stream, _), newest in zip(refused, await pipeline.execute(), strict=True):
            if newest:
                stream.refused(top=EntryId.parse(newest[0][0]))


def _is_refusal(reply: object) -> bool:
    return isinstance(reply, ResponseError) and REFUSAL in str(reply)
