"""One run that is asked for, read, and stopped at a known moment."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from tests.sse_client import Api, Reading
from tests.stack.gauge import PATIENCE_S, Gauge

Reached = Callable[[Reading], object]


async def until(condition: Callable[[], object]) -> None:
    """Return as soon as `condition` holds. Raises `TimeoutError`."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110  (conditions have no event to wait for)
            await asyncio.sleep(0.002)


@asynccontextmanager
async def being_read(
    api: Api, content: str, bytes_until_cut: int | None = None
) -> AsyncIterator[tuple[str, Reading, asyncio.Task[int]]]:
    """Ask, and read in a task of its own; yields the run's id, the reading and the task."""
    asked, reading = await api.ask(content), Reading()
    reader = asyncio.create_task(api.read(asked["stream"], reading, bytes_until_cut))
    yield asked["run_id"], reading, reader
    await reader


@asynccontextmanager
async def running(api: Api, gauge: Gauge, contents: Sequence[str]) -> AsyncIterator[None]:
    """Have the engine answer all these, and stop them together."""
    await gauge.settle()
    asked = await asyncio.gather(*map(api.ask, contents))
    await gauge.reach(lambda load: load.running == len(contents))
    yield
    await asyncio.gather(*(api.post(f"/api/runs/{run['run_id']}/cancel", {}) for run in asked))
    await gauge.settle()


async def stop_queued(api: Api, content: str) -> float:
    """Stop a run that waits; seconds until its reader has the end."""
    async with being_read(api, content) as (run_id, reading, reader):
        await until(lambda: reading.events)
        began_at = time.monotonic()
        shown = await api.post(f"/api/runs/{run_id}/cancel", {})
        await asyncio.wait_for(reader, PATIENCE_S)
        told_s = time.monotonic() - began_at
    assert (shown["status"], shown["attempt"]) == ("cancelled", 0)
    await assert_stopped(api, run_id, reading)
    return told_s


async def stop_and_watch(
    api: Api, gauge: Gauge, content: str, is_reached: Reached, pause_s: float = 0.0
) -> tuple[float, float]:
    """Stop a run `pause_s` behind a moment; seconds until its reader has the end, until the engine is empty."""
    async with being_read(api, content) as (run_id, reading, reader):
        await until(lambda: is_reached(reading))
        await asyncio.sleep(pause_s)
        began_at = time.monotonic()
        await api.post(f"/api/runs/{run_id}/cancel", {})
        emptying = asyncio.create_task(gauge.seconds_until_engine_is_empty())
        posted_s = time.monotonic() - began_at
        await asyncio.wait_for(reader, PATIENCE_S)
        told_s = time.monotonic() - began_at
    freed_s = posted_s + await emptying
    await assert_stopped(api, run_id, reading)
    return told_s, freed_s


async def seconds_to_first_word(api: Api, content: str) -> float:
    """Ask, and stop the answer at its first word."""
    began_at = time.monotonic()
    async with being_read(api, content) as (run_id, reading, _):
        await until(lambda: reading.text)
        waited_s = time.monotonic() - began_at
        await api.post(f"/api/runs/{run_id}/cancel", {})
    return waited_s


async def assert_stopped(api: Api, run_id: str, reading: Reading) -> None:
    """The run is cancelled, and its reader has what is stored."""
    run = await api.get(f"/api/runs/{run_id}")
    assert (run["status"], run["finish_reason"]) == ("cancelled", "cancelled")
    assert reading.ended is not None
    assert reading.ended.name == "cancelled"
    held, charged = run["input_tokens"] + run["max_output_tokens"], reading.ended.data["usage"]["charged_tokens"]
    assert reading.ended.data["refunded_tokens"] == held - charged
    assert reading.ended.data["chars"] == len(reading.text)
    messages = (await api.get(f"/api/chats/{run['chat_id']}/messages"))["results"]
    assert [message["content"] for message in messages[1:]] == ([reading.text] if reading.text else [])


def spread(seconds: Sequence[float]) -> str:
    """Median and worst, in milliseconds."""
    return (
        f"{statistics.median(seconds) * 1000:.0f} ms (median), {max(seconds) * 1000:.0f} ms (worst of {len(seconds)})"
    )
