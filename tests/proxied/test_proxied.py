"""Streams through a real nginx, and through another before it: on time, compressed or not, whatever is restarted."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import time
import zlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

import httpx
import pytest

from tests.proxied.conftest import LONGEST, Proxied
from tests.sse_client import Api, Event, EventParser, Reading, request
from tests.streaming.telling import until

GAP_S = 1.0
STREAMS, RUNS = 200, 50
# Ten seconds; and longer than all restarts take, however slow the machine: it is stopped then.
SHORT, LONG = json.dumps({"chars": 200}), json.dumps({"chars": 4000})
AGAIN_AFTER_S = 0.1
PROMPT_EVERY_S = 0.25

pytestmark = pytest.mark.timeout(240)


@dataclass
class Clocked(Reading):
    """A reading that knows when each of its events came."""

    came_at: dict[str, float] = field(default_factory=dict)

    def take(self, event: Event) -> None:
        """As a browser's page."""
        super().take(event)
        if event.id:
            self.came_at[event.id] = time.monotonic()

    @property
    def longest_gap_s(self) -> float:
        """Between one event and the next."""
        return max(later - earlier for earlier, later in itertools.pairwise(self.came_at.values()))


async def test_no_layer_holds_an_event_back(proxied: Proxied, figures: Callable[[str], None]) -> None:
    direct, strange, compressed = Clocked(), Clocked(), Clocked()
    asked = await proxied.strange.ask(f"[[script {SHORT}]]")
    await asyncio.gather(
        proxied.direct.read(asked["stream"], direct),
        proxied.strange.read(asked["stream"], strange),
        read_compressed(proxied.strange, asked["stream"], compressed),
    )

    assert direct.ended is not None
    for reading in (strange, compressed):
        assert reading.text == direct.text
        assert set(reading.came_at) == set(direct.came_at)
        late_s = max(came_at - direct.came_at[event_id] for event_id, came_at in reading.came_at.items())
        assert late_s < GAP_S
        assert reading.longest_gap_s < direct.longest_gap_s + GAP_S
    gaps = [f"{reading.longest_gap_s * 1000:.0f}" for reading in (direct, strange, compressed)]
    figures(f"longest gap between events at 20 tokens/s, in ms: direct, two layers, compressed: {', '.join(gaps)}")


async def read_compressed(api: Api, path: str, reading: Reading) -> None:
    """As a browser reads, which takes compressed answers."""
    headers = {**api.headers, "Accept-Encoding": "gzip"}
    async with request(api.door, "GET", path, headers) as answer:
        assert answer.status == 200
        parser = EventParser()
        async for piece in decompressed(answer.headers.get("content-encoding"), answer.chunks()):
            for event in parser.feed(piece):
                reading.take(event)


async def decompressed(encoding: str | None, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """What was sent, as far as it can be read from what has come."""
    gunzip = zlib.decompressobj(wbits=31)
    async for chunk in chunks:
        yield gunzip.decompress(chunk) if encoding == "gzip" else chunk


async def test_streams_share_one_http_2_connection(proxied: Proxied) -> None:
    origin = f"https://127.0.0.1:{proxied.tls_port}"
    one = httpx.Limits(max_connections=1)
    async with httpx.AsyncClient(
        base_url=origin, headers=proxied.direct.headers, http1=False, http2=True, limits=one, verify=proxied.trust
    ) as browser:
        asked = [await proxied.direct.ask(f"{n} [[script {SHORT}]]") for n in range(10)]

        async def read(path: str) -> Reading:
            reading, parser = Reading(), EventParser()
            async with browser.stream("GET", path) as answer:
                assert (answer.status_code, answer.http_version) == (200, "HTTP/2")
                async for chunk in answer.aiter_bytes():
                    for event in parser.feed(chunk):
                        reading.take(event)
            return reading

        for reading in await asyncio.gather(*(read(run["stream"]) for run in asked)):
            assert_whole(reading)


async def test_a_rolling_restart_costs_no_reader_a_word(proxied: Proxied, figures: Callable[[str], None]) -> None:
    api = proxied.strange
    asked = [await api.ask(f"{n} [[script {LONG}]]", max_output_tokens=LONGEST) for n in range(RUNS)]
    readings = [Counted() for _ in range(STREAMS)]
    prompts = Prompts(api)
    async with asyncio.TaskGroup() as clients:
        for run, reading in zip(itertools.cycle(asked), readings, strict=False):
            clients.create_task(read_to_the_end(api, run["stream"], reading))
        await all_grow(readings)
        asking = clients.create_task(prompts.send())

        for part in (*proxied.webs, *proxied.workers):
            await part.restart()
            await all_grow(readings)

        asking.cancel()
        for run in asked:
            await api.post(f"/api/runs/{run['run_id']}/cancel", {})
    for reading in readings:
        assert_whole(reading, "cancelled")
    assert prompts.refused == []
    attempts = [(await api.get(f"/api/runs/{run['run_id']}"))["attempt"] for run in asked]
    assert max(attempts) > 1, "no worker had to hand back what it ran"
    cuts = sum(reading.connections - 1 for reading in readings)
    figures(
        f"{STREAMS} streams over 4 restarts: {cuts} reconnects, attempts up to {max(attempts)}, {prompts.sent} prompts"
    )


async def all_grow(readings: Sequence[Reading]) -> None:
    """Return when each has got more."""
    told = [len(reading.text) for reading in readings]
    await until(lambda: all(len(reading.text) > chars for reading, chars in zip(readings, told, strict=True)))


def assert_whole(reading: Reading, status: str = "done") -> None:
    """It ended, and is what was stored."""
    assert reading.ended is not None
    assert reading.ended.name == status
    assert reading.ended.data["sha256"] == hashlib.sha256(reading.text.encode()).hexdigest()


@dataclass
class Counted(Reading):
    """A reading that knows how often it had to connect."""

    connections: int = 0


async def read_to_the_end(api: Api, path: str, reading: Counted) -> None:
    """As a browser, which comes back when a connection ends before the answer does."""
    while not reading.ended:
        reading.connections += 1
        try:
            status = await api.read(path, reading)
        except (OSError, asyncio.IncompleteReadError):
            continue
        assert status == 200, (status, reading.refusal)
        await asyncio.sleep(0 if reading.ended else AGAIN_AFTER_S)


@dataclass
class Prompts:
    """Somebody who asks again and again, in a new chat each time."""

    api: Api
    sent: int = 0
    refused: list[str] = field(default_factory=list)

    async def send(self) -> None:
        """Until cancelled."""
        while True:
            self.sent += 1
            try:
                await self.api.ask('[[script {"chars": 1}]]')
            except (OSError, asyncio.IncompleteReadError, AssertionError) as refusal:
                self.refused.append(repr(refusal))
            await asyncio.sleep(PROMPT_EVERY_S)
