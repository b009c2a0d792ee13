"""A client of the API and its event streams over bare sockets, which can hang up after any byte."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Where a server listens: a port on loopback, or a Unix socket.
Door = int | Path


@dataclass(frozen=True)
class Event:
    """One event of `text/event-stream`."""

    name: str
    data: dict[str, Any]
    id: str | None


@dataclass
class Answer:
    """An HTTP answer's head, and its body as it comes."""

    status: int
    headers: Mapping[str, str]
    reader: asyncio.StreamReader

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body's pieces, until its end or the connection's."""
        if self.headers.get("transfer-encoding") != "chunked":
            yield await self.reader.readexactly(int(self.headers.get("content-length", "0")))
            return
        while line := await self.reader.readline():
            chunk = await self.reader.readexactly(int(line, 16) + 2)
            if len(chunk) == 2:
                return
            yield chunk[:-2]

    async def body(self) -> bytes:
        """The whole body."""
        return b"".join([chunk async for chunk in self.chunks()])

    async def json(self) -> Any:
        """The whole body as JSON."""
        return json.loads(await self.body())

    async def events(self) -> list[Event]:
        """All events until the response ends."""
        parser = EventParser()
        return [event async for chunk in self.chunks() for event in parser.feed(chunk)]


class EventParser:
    """Bytes to events, whatever pieces the bytes come in."""

    def __init__(self) -> None:
        self._rest = b""
        self.comments = 0

    @property
    def is_inside(self) -> bool:
        """Whether an event has begun and not ended."""
        return bool(self._rest)

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that `chunk` completes; an unfinished one is kept for the next."""
        *blocks, self._rest = (self._rest + chunk).split(b"\n\n")
        return [event for block in blocks if (event := self._event(block.decode()))]

    def _event(self, block: str) -> Event | None:
        fields = dict(line.split(": ", 1) for line in block.split("\n") if not line.startswith(":"))
        if not fields:
            self.comments += 1
            return None
        return Event(fields["event"], json.loads(fields["data"]), fields.get("id"))


@asynccontextmanager
async def request(
    door: Door, method: str, path: str, headers: Mapping[str, str] | None = None, body: Any = None
) -> AsyncIterator[Answer]:
    """Send one request; the connection is closed when the block ends, whatever is still to come."""
    reader, writer = await _sent(door, method, path, headers, body)
    try:
        status, answered = _head(await reader.readuntil(b"\r\n\r\n"))
        yield Answer(status, answered, reader)
    finally:
        writer.close()


async def abandon(door: Door, path: str, headers: Mapping[str, str]) -> None:
    """Ask for a page, and hang up before the answer."""
    _, writer = await _sent(door, "GET", path, headers)
    await writer.drain()
    writer.close()


async def _sent(
    door: Door, method: str, path: str, headers: Mapping[str, str] | None, body: Any = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if isinstance(door, Path):
        reader, writer = await asyncio.open_unix_connection(door)
    else:
        reader, writer = await asyncio.open_connection("127.0.0.1", door)
    payload = b"" if body is None else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", "Connection: close", f"Content-Length: {len(payload)}"]
    lines += ["Content-Type: application/json"] * bool(payload)
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    writer.write("\r\n".join([*lines, "", ""]).encode() + payload)
    return reader, writer


def _head(raw: bytes) -> tuple[int, dict[str, str]]:
    status, *lines = raw.decode("latin1").strip().split("\r\n")
    return int(status.split()[1]), {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}


@dataclass
class Reading:
    """What a reader has pieced together of one run, over any number of connections."""

    text: str = ""
    last_id: str | None = None
    ended: Event | None = None
    events: list[Event] = field(default_factory=list)
    is_cut_inside: bool = False  # the last connection ended inside an event
    refusal: str | None = None  # what the last connection brought instead of events

    @property
    def header(self) -> dict[str, str]:
        """What a browser sends when it comes back."""
        return {"Last-Event-ID": self.last_id} if self.last_id else {}

    def take(self, event: Event) -> None:
        """Take one event as a browser's page does. Raises AssertionError where it does not fit what is there."""
        assert self.ended is None, f"{event} after the end"
        self.events.append(event)
        self.last_id = event.id or self.last_id
        match event.name:
            case "delta":
                assert event.data["offset"] == len(self.text), (event, len(self.text))
                assert event.data["text"], event
                self.text += event.data["text"]
            case "reset":
                self.text = self.text[: event.data["offset"]]
            case "done" | "cancelled" | "failed":
                self.ended = event


@dataclass
class TimedReading(Reading):
    """A reading that knows of which run it is, and when each attempt's first delta came."""

    run_id: str = ""
    began_at: dict[int, float] = field(default_factory=dict)

    def take(self, event: Event) -> None:
        """As a browser's page."""
        super().take(event)
        if event.name == "delta":
            self.began_at.setdefault(self.attempts, time.monotonic())

    @property
    def attempts(self) -> int:
        """How many attempts it saw."""
        return int((self.last_id or "0").partition("-")[0])


class Api:
    """One user's view of a server."""

    def __init__(self, door: Door, key: str) -> None:
        self.door = door
        self.headers = {"Authorization": f"Bearer {key}"}

    async def post(self, path: str, body: Any) -> Any:
        """POST, and the JSON answered. Raises AssertionError for a refusal."""
        async with request(self.door, "POST", path, self.headers, body) as answer:
            answered = await answer.json()
            assert answer.status < 300, answered
            return answered

    async def call(self, method: str, path: str) -> tuple[int, Any]:
        """Any call without a body: the status, and the JSON answered, None where there is none."""
        async with request(self.door, method, path, self.headers) as answer:
            body = await answer.body()
            return answer.status, json.loads(body) if body else None

    async def get(self, path: str) -> Any:
        """GET, and the JSON answered. Raises AssertionError for a refusal."""
        async with request(self.door, "GET", path, self.headers) as answer:
            answered = await answer.json()
            assert answer.status == 200, answered
            return answered

    async def ask(self, content: str, chat_id: str | None = None, **wishes: Any) -> dict[str, Any]:
        """Ask in a new chat, or in `chat_id`; returns what the API says of the run, and the chat's id."""
        chat = chat_id or (await self.post("/api/chats", {}))["id"]
        return {**await self.post(f"/api/chats/{chat}/messages", {"content": content, **wishes}), "chat_id": chat}

    def stream(self, path: str, last_id: str | None = None) -> Any:
        """Open an event stream behind `last_id`; an async context manager of an `Answer`."""
        return request(self.door, "GET", path, self.headers | ({"Last-Event-ID": last_id} if last_id else {}))

    async def read(self, path: str, reading: Reading, bytes_until_cut: int | None = None) -> int:
        """Go on reading a run, hanging up after so many bytes of the body; returns the HTTP status."""
        async with self.stream(path, reading.last_id) as answer:
            parser = EventParser()
            reading.is_cut_inside = False
            left = bytes_until_cut
            if answer.status >= 400:
                reading.refusal = (await answer.body()).decode()
                return int(answer.status)
            if left == 0:
                return int(answer.status)
            async for chunk in answer.chunks():
                for event in parser.feed(chunk if left is None else chunk[:left]):
                    reading.take(event)
                reading.is_cut_inside = parser.is_inside
                if left is not None and (left := left - len(chunk)) <= 0:
                    break
            return int(answer.status)
