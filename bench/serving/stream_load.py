"""The load of the stream tier's bench: workers that write runs, and readers of them, each in a process of its own."""

from __future__ import annotations

import asyncio
import re
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, cast
from urllib.parse import urlsplit
from uuid import UUID

import hiredis
import uvloop

from inference.streams import MAX_ENTRIES, RUNNING_TTL_S, Delta, EntryId, Event, Started, fields, run_key

INTERVAL_S = 0.05  # between a run's tokens
RUNS_A_WORKER = 50  # whose tokens come together, as those of one engine's step do
GOLDEN = 0.618  # spreads any number of workers' moments evenly over the interval
OPENING_AT_ONCE = 4
AGAIN_S = 0.5
CLOCK = 1_000_000_000  # a token's text is its time in microseconds, modulo this
SENT = re.compile(rb'"text":"(\d{9})"')
END = b"\n\n\r\n"  # of an event, and of the chunk it came in


def now_us() -> int:
    """The time, the same in all processes of this machine."""
    return time.monotonic_ns() // 1000 % CLOCK


@dataclass(slots=True)
class _Written:
    """A run that is being written."""

    key: str
    seq: int = 0
    offset: int = 0

    def next_delta(self) -> bytes:
        """The XADD of a token that is made now."""
        delta = Delta(f"{now_us():09d}", self.offset, (self.seq,))
        self.seq, self.offset = self.seq + 1, delta.end
        return added(self.key, EntryId(1, self.seq), delta)


def added(key: str, entry_id: EntryId, event: Event) -> bytes:
    """The command that a worker's writer sends for an event."""
    pairs = [part for pair in fields(event).items() for part in pair]
    return command("XADD", key, "MAXLEN", "~", MAX_ENTRIES, str(entry_id), *pairs)


def command(*parts: str | int) -> bytes:
    """A command of Valkey's as it is sent."""
    return bytes(hiredis.pack_command(cast(Any, parts)))


class Replies(asyncio.Protocol):
    """A connection to Valkey whose answers are read only to see that none is an error."""

    def __init__(self) -> None:
        self._reader = hiredis.Reader()

    def data_received(self, data: bytes) -> None:
        """Raises the error that an answer is."""
        self._reader.feed(data)
        while (reply := self._reader.gets()) is not False:
            if isinstance(reply, Exception):
                raise reply


class Writers:
    """Workers that add one entry a run every 50 ms, in one pipeline a worker, each at its own moment."""

    def __init__(self, redis_url: str, run_ids: Sequence[UUID]) -> None:
        self._redis_url = redis_url
        self._runs = [_Written(run_key(run_id)) for run_id in run_ids]
        self._wanted = 0
        self._late = array("d")

    async def serve(self, ask: Callable[[], Any], answer: Callable[[Any], None]) -> None:
        """Do as asked: write so many runs from now on, or say how late ticks were, in seconds."""
        transport = await self._connected()
        for run in self._runs:
            transport.write(added(run.key, EntryId.fence(1), Started(1, "default")))
            transport.write(command("EXPIRE", run.key, RUNNING_TTL_S))
        began_at = asyncio.get_running_loop().time() + INTERVAL_S
        for number, first in enumerate(range(0, len(self._runs), RUNS_A_WORKER)):
            runs = self._runs[first : first + RUNS_A_WORKER]
            self._tick_at(began_at + INTERVAL_S * (number * GOLDEN % 1), transport, first, runs)
        while (asked := await asyncio.to_thread(ask)) is not None:
            self._wanted = asked
            late, self._late = self._late, array("d")
            answer(late)

    async def _connected(self) -> asyncio.WriteTransport:
        url = urlsplit(self._redis_url)
        assert url.hostname
        assert url.port
        transport, _ = await asyncio.get_running_loop().create_connection(Replies, url.hostname, url.port)
        transport.write(command("AUTH", url.password or ""))
        transport.write(command("SELECT", url.path.strip("/") or "0"))
        return transport

    def _tick_at(self, due_at: float, transport: asyncio.WriteTransport, first: int, runs: Sequence[_Written]) -> None:
        loop = asyncio.get_running_loop()

        def tick() -> None:
            self._late.append(loop.time() - due_at)
            if wanted := runs[: max(0, self._wanted - first)]:
                transport.write(b"".join([run.next_delta() for run in wanted]))
            self._tick_at(due_at + INTERVAL_S, transport, first, runs)

        loop.call_at(due_at, tick)


class _Reader(asyncio.Protocol):
    """One open stream."""

    def __init__(self, request: bytes, lags_us: array[int]) -> None:
        self._request = request
        self._lags_us = lags_us
        self._rest = b""
        self.opened: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.WriteTransport, transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        now = now_us()
        if not self.opened.done():
            self._open(data)
        self._rest += data
        if self._rest.endswith(END):
            for sent in SENT.findall(self._rest):
                self._lags_us.append((now - int(sent)) % CLOCK)
            self._rest = b""

    def connection_lost(self, _error: Exception | None) -> None:
        if not self.opened.done():
            self.opened.set_exception(ConnectionError("no answer"))

    def _open(self, data: bytes) -> None:
        if data.startswith((b"HTTP/1.1 200", b"HTTP/1.1 503")):
            self.opened.set_result(data.startswith(b"HTTP/1.1 200"))
        else:
            self.opened.set_exception(ConnectionError(data[:500]))


@dataclass(slots=True)
class Readers:
    """So many open streams, each of a run of its own."""

    port: int
    runs: Sequence[tuple[str, UUID]]  # with their users' keys
    _lags_us: array[int] = field(default_factory=lambda: array("L"))
    _open: int = 0

    async def serve(self, ask: Callable[[], Any], answer: Callable[[Any], None]) -> None:
        """Do as asked: have so many streams open, then tell the lags since the last time, in microseconds."""
        while (asked := await asyncio.to_thread(ask)) is not None:
            gate = asyncio.Semaphore(OPENING_AT_ONCE)
            await asyncio.gather(*(self._read(number, gate) for number in range(self._open, asked)))
            self._open = max(self._open, asked)
            answer(self._lags_us[:])
            del self._lags_us[:]

    async def _read(self, number: int, gate: asyncio.Semaphore) -> None:
        key, run_id = self.runs[number]
        request = (
            f"GET /api/runs/{run_id}/stream HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\n"
            "Accept: text/event-stream\r\n\r\n"
        )
        async with gate:
            while not await self._opened(request.encode()):  # noqa: ASYNC110  (nobody to wake us)
                await asyncio.sleep(AGAIN_S)

    async def _opened(self, request: bytes) -> bool:
        """Whether the stream is open; an overloaded process may refuse it. Raises `ConnectionError` for the rest."""
        loop = asyncio.get_running_loop()
        _, reader = await loop.create_connection(lambda: _Reader(request, self._lags_us), "127.0.0.1", self.port)
        return await reader.opened


def work(load: Writers | Readers, pipe: Connection) -> None:
    """Be the load, in a process of its own, until asked for nothing."""
    uvloop.run(load.serve(pipe.recv, pipe.send))
