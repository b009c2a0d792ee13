"""A thousand open streams in one web process: what they hold, and that all of them are told everything."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import psutil
import psycopg
from redis.asyncio import Redis

from inference.streams import Delta, Ended, EntryId, Event, Started, fields, run_key
from tests.sse_client import EventParser, Reading
from tests.stack.stack import Process, Stack

STREAMS = 1000
RUNS = 50
MAX_THREADS = 20
MAX_CONNECTIONS = 5
OPENING_AT_ONCE = 50
TEXT = "Hello 👋🏽 دنیا " * 5
PIECE_CHARS = 6
SCRIPT = json.dumps({"text": TEXT, "tokens_per_step": 10})

LIKE_RUN = """
    WITH ids AS (
        SELECT unnest(%(runs)s::uuid[]) AS run, gen_random_uuid() AS chat, gen_random_uuid() AS message
    ), template AS (
        SELECT run.*, chat.owner_id FROM chat_run run JOIN chat_chat chat ON chat.id = run.chat_id
         WHERE run.id = %(like)s
    ), chats AS (
        INSERT INTO chat_chat (id, owner_id, title) SELECT ids.chat, owner_id, 'One of many' FROM ids, template
    ), messages AS (
        INSERT INTO chat_message (id, chat_id, position, role, content, token_count)
        SELECT ids.message, ids.chat, 1, 'user', 'Hi', 1 FROM ids
    )
    INSERT INTO chat_run (id, chat_id, prompt_id, kind, model_id, tier_id, status, attempt, worker, max_output_tokens,
                          input_tokens, cached_tokens, output_tokens, finish_reason, error_code, error_detail)
    SELECT ids.run, ids.chat, ids.message, kind, model_id, tier_id, 'queued', 0, '', max_output_tokens,
           input_tokens, 0, 0, '', '', '' FROM ids, template
"""


class Crowd:
    """Readers on connections that stay open to the end of their runs."""

    def __init__(self, stack: Stack, paths: Sequence[str]) -> None:
        self._stack = stack
        self._gate = asyncio.Semaphore(OPENING_AT_ONCE)
        self.readings: list[Reading] = []
        self.opened = 0
        self.readers = [asyncio.create_task(self._read(paths[n % len(paths)])) for n in range(STREAMS)]

    @property
    def open_now(self) -> int:
        """Streams that are open."""
        return self.opened - sum(reader.done() for reader in self.readers)

    async def _read(self, path: str) -> None:
        reading = Reading()
        self.readings.append(reading)
        async with self._gate:
            answer = await (stream := self._stack.api.stream(path)).__aenter__()
        try:
            assert answer.status == 200
            self.opened += 1
            parser = EventParser()
            async for chunk in answer.chunks():
                for event in parser.feed(chunk):
                    reading.take(event)
        finally:
            await stream.__aexit__(None, None, None)

    async def settle(self) -> None:
        """Return when every stream is open."""
        async with asyncio.timeout(90):
            while self.opened < STREAMS:  # noqa: ASYNC110  (nobody to wake us)
                await asyncio.sleep(0.05)

    async def finish(self) -> tuple[int, int]:
        """Read to the end; returns the most threads and connections that the web process held meanwhile."""
        everybody = asyncio.gather(*self.readers)
        threads = connections = 0
        async with asyncio.timeout(120):
            while not everybody.done():
                threads = max(threads, threads_of(self._stack.web))
                connections = max(connections, connections_of(self._stack))
                await asyncio.wait({everybody}, timeout=0.5)
        await everybody
        return threads, connections


async def test_a_thousand_readers_of_fifty_runs_hold_few_threads_and_connections(
    scripted_stack: Stack, figures: Callable[[str], None]
) -> None:
    with scripted_stack.worker.paused():
        asked = [await scripted_stack.api.ask(f"{number} [[script {SCRIPT}]]") for number in range(RUNS)]
        crowd = await opened(figures, scripted_stack, [run["stream"] for run in asked])
    threads, connections = await crowd.finish()
    figures(f"  while the worker spoke: at most {threads} threads, {connections} database connections")

    assert_told_everything(crowd, "done")
    assert threads <= MAX_THREADS
    assert connections <= MAX_CONNECTIONS


async def test_a_thousand_streams_of_as_many_runs_hold_few_threads_and_connections(
    scripted_stack: Stack, figures: Callable[[str], None]
) -> None:
    with scripted_stack.worker.paused():
        like = await scripted_stack.api.ask(f"like this [[script {SCRIPT}]]")
        runs = [uuid4() for _ in range(STREAMS)]
        with psycopg.connect(scripted_stack.database_url) as connection:
            connection.execute(LIKE_RUN, {"runs": runs, "like": like["run_id"]})
        crowd = await opened(figures, scripted_stack, [f"/api/runs/{run_id}/stream" for run_id in runs])
        telling = asyncio.create_task(tell(scripted_stack, runs))
        threads, connections = await crowd.finish()
        await telling
        with psycopg.connect(scripted_stack.database_url) as connection:  # or the worker would answer them all
            connection.execute("DELETE FROM chat_run WHERE id = ANY(%s)", [runs])
    figures(f"  while they were told: at most {threads} threads, {connections} database connections")

    assert_told_everything(crowd, "cancelled")
    assert threads <= MAX_THREADS
    assert connections <= MAX_CONNECTIONS


async def opened(figures: Callable[[str], None], stack: Stack, paths: Sequence[str]) -> Crowd:
    """Open all streams while no run moves, and assert what they hold."""
    before_mb, began_at = memory_mb(stack.web), time.monotonic()
    crowd = Crowd(stack, paths)
    await crowd.settle()
    threads, connections = threads_of(stack.web), connections_of(stack)
    figures(
        f"{crowd.open_now} streams of {len(paths)} runs open, in {time.monotonic() - began_at:.1f} s: "
        f"{threads} threads, {connections} database connections, {memory_mb(stack.web) - before_mb} MB more"
    )
    assert crowd.open_now == STREAMS
    assert threads <= MAX_THREADS
    assert connections <= MAX_CONNECTIONS
    return crowd


async def tell(stack: Stack, runs: Sequence[UUID]) -> None:
    """Be the worker of all the runs: a start, the text in small pieces, an end."""
    ended = Ended("cancelled", {"status": "cancelled", "message_id": None, "chars": len(TEXT)})
    deltas = [(EntryId(1, at + 1), Delta(TEXT[at : at + PIECE_CHARS], at)) for at in range(0, len(TEXT), PIECE_CHARS)]
    async with Redis.from_url(stack.streams_url) as redis:
        await add(redis, runs, EntryId.fence(1), Started(1, "default"))
        for entry_id, delta in deltas:
            await add(redis, runs, entry_id, delta)
            await asyncio.sleep(0.1)
        await add(redis, runs, EntryId.terminal(1), ended)


async def add(redis: Redis, runs: Sequence[UUID], entry_id: EntryId, event: Event) -> None:
    """The same entry to all streams, in one round trip."""
    async with redis.pipeline(transaction=False) as pipe:
        for run_id in runs:
            pipe.execute_command("XADD", run_key(run_id), str(entry_id), *sum(fields(event).items(), ()))
        await pipe.execute()


def assert_told_everything(crowd: Crowd, end: str) -> None:
    """Every reader has the whole text once, and its end."""
    assert len(crowd.readings) == STREAMS
    assert {reading.text for reading in crowd.readings} == {TEXT}
    assert {reading.ended and reading.ended.name for reading in crowd.readings} == {end}


def threads_of(process: Process) -> int:
    """Threads of a process, those of C libraries too."""
    return len(list(Path(f"/proc/{process.pid}/task").iterdir()))


def memory_mb(process: Process) -> int:
    """Resident memory."""
    return int(psutil.Process(process.pid).memory_info().rss) >> 20


def connections_of(stack: Stack) -> int:
    """Connections to Postgres that the web process holds."""
    server = urlsplit(stack.database_url).port
    connections = psutil.Process(stack.web.pid).net_connections("tcp")
    return sum(c.status == "ESTABLISHED" and c.raddr.port == server for c in connections)
