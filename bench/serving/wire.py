"""HTTP/1.1 over connections that are kept: as little of a client as can be, so that the server is what is measured."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from typing import Any, cast

import httptools

# A server closes what is idle after some seconds; a request into a closing connection would count against it.
IDLE_S = 2.0

Take = Callable[[bytes], None]


class HungUp(ConnectionError):
    """The connection ended in mid-answer."""


class Connection(asyncio.Protocol):
    """One connection, on which one answer at a time comes."""

    def __init__(self) -> None:
        self.used_at = 0.0
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._ended: asyncio.Future[int] | None = None
        self._take: Take = _drop

    @property
    def is_fresh(self) -> bool:
        """Whether another request may go over it."""
        is_open = self._transport is not None and not self._transport.is_closing()
        return is_open and time.monotonic() - self.used_at < IDLE_S

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio's."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are not derived from it
        self.used_at = time.monotonic()

    def data_received(self, data: bytes) -> None:
        """asyncio's."""
        self._parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio's."""
        if self._ended is not None and not self._ended.done():
            self._ended.set_exception(HungUp(str(exc or "closed")))

    def on_body(self, body: bytes) -> None:
        """The parser's."""
        self._take(body)

    def on_message_complete(self) -> None:
        """The parser's."""
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(self._parser.get_status_code())

    async def exchange(self, request: bytes, take: Take) -> int:
        """Send a request, and have `take` the body's pieces as they come; returns the status. Raises `HungUp`."""
        assert self._transport is not None
        self._take = take
        self._ended = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        status = await self._ended
        self.used_at = time.monotonic()
        return status

    def close(self) -> None:
        """Hang up."""
        if self._transport is not None:
            self._transport.close()


class Wire:
    """All connections to a server: as many as there are requests under way."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._idle: list[Connection] = []

    async def exchange(self, request: bytes, take: Take) -> int:
        """Send a request over a connection that is free, or a new one; returns the status. Raises `OSError`."""
        connection = await self._connection()
        try:
            status = await connection.exchange(request, take)
        except BaseException:
            connection.close()
            raise
        self._idle.append(connection)
        return status

    async def whole(self, request: bytes) -> tuple[int, bytes]:
        """Send a request; returns status and body."""
        pieces: list[bytes] = []
        status = await self.exchange(request, pieces.append)
        return status, b"".join(pieces)

    def close(self) -> None:
        """Hang up all."""
        while self._idle:
            self._idle.pop().close()

    async def _connection(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_fresh:
                return connection
            connection.close()
        _, connection = await asyncio.get_running_loop().create_connection(Connection, "127.0.0.1", self._port)
        return connection


def request(method: str, path: str, key: str, body: Mapping[str, Any] | None = None) -> bytes:
    """A request's bytes."""
    payload = b"" if body is None else json.dumps(body).encode()
    lines = [
        f"{method} {path} HTTP/1.1",
        "Host: 127.0.0.1",
        f"Authorization: Bearer {key}",
        *(["Content-Type: application/json", f"Content-Length: {len(payload)}"] if payload else []),
    ]
    return "\r\n".join([*lines, "", ""]).encode() + payload


def _drop(_: bytes) -> None:
    """Nobody has asked."""
