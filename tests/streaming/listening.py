"""A page with an event feed open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.sse_client import Answer, Event, EventParser, request
from tests.streaming.telling import until


@dataclass
class Page:
    """What one open feed was told."""

    answer: Answer
    parser: EventParser = field(default_factory=EventParser)
    events: list[Event] = field(default_factory=list)
    is_over: bool = False

    async def read(self) -> None:
        """Read until the feed ends."""
        async for chunk in self.answer.chunks():
            self.events += self.parser.feed(chunk)
        self.is_over = True

    async def told(self, count: int = 1) -> list[tuple[str, Any]]:
        """The first `count` events, as soon as they are there."""
        await until(lambda: len(self.events) >= count)
        return [(event.name, event.data) for event in self.events[:count]]


@asynccontextmanager
async def listening(
    port: int, headers: Mapping[str, str], path: str = "/api/events", last_id: str | None = None
) -> AsyncIterator[Page]:
    """Open a feed, and read it while the block runs."""
    place = {"Last-Event-ID": last_id} if last_id else {}
    async with request(port, "GET", path, {**headers, **place}) as answer:
        assert answer.status == 200
        page = Page(answer)
        reading = asyncio.create_task(page.read())
        await until(lambda: page.parser.comments or page.is_over)
        try:
            yield page
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
