"""How many live streams one web process carries on one core, and what an event costs it.

    MODEL_PATH=.palaver/models/SmolLM2-135M-Instruct python -m bench.serving.stream_tier [--streams 100,500]

One real web process alone on the first core; PostgreSQL, Valkey, the workers that write and the readers on the second.
Each stream is of a run of its own and says a token every 50 ms, in an entry of its own. A token's text is the time of
its XADD, which its reader takes from its own when it has arrived. CPU is what the kernel charged the process, over the
events that arrived. What others took of the web's core is printed beside it: with more than a little, times are theirs.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import multiprocessing
import os
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psutil
import psycopg

from bench.serving.figures import Bound, Figure
from bench.serving.stream_load import INTERVAL_S, Readers, Writers, work
from bench.simulation.figures import percentile
from launcher import servers
from launcher.child import free_port
from tests.stack.stack import answers, environment, new_users, prepared, started

WEB_CORE, LOAD_CORE = 0, 1
LADDER = (100, 250, 500, 750, 1000, 1250)
SECONDS = 10.0
SETTLE_S = 2.0
USERS = 10
RUNS_OF = """
    WITH owner AS (
        SELECT chat_user.id, tier_id FROM chat_user JOIN chat_apikey ON chat_apikey.user_id = chat_user.id
         WHERE digest = encode(sha256(%(key)s::bytea), 'hex')
    ), asked AS MATERIALIZED (
        SELECT gen_random_uuid() AS chat, gen_random_uuid() AS prompt FROM generate_series(1, %(runs)s)
    ), chats AS (
        INSERT INTO chat_chat (id, owner_id, title) SELECT chat, owner.id, '' FROM asked, owner
    ), prompts AS (
        INSERT INTO chat_message (id, chat_id, position, role, content, token_count)
        SELECT prompt, chat, 1, 'user', 'Hi', 1 FROM asked
    )
    INSERT INTO chat_run (id, chat_id, prompt_id, kind, model_id, tier_id, status, attempt, worker, lease_until,
                          max_output_tokens, input_tokens, cached_tokens, output_tokens, finish_reason, error_code,
                          error_detail)
    SELECT gen_random_uuid(), chat, prompt, 'reply', scheduler_model.slug, tier_id, 'streaming', 1, 'bench',
           now() + interval '1 day', 100000, 3, 0, 0, '', '', ''
      FROM asked, owner, scheduler_model
    RETURNING id
"""
BOUNDS = {(750, "XADD to client, p99"): Bound(150), (750, "web CPU an event"): Bound(52)}
CONNECTIONS = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"


@dataclass(frozen=True, slots=True)
class Usage:
    """What was used by a moment: seconds of CPU by the web process, by the load, and by all on the core of each."""

    at_s: float
    web_s: float
    load_s: float
    web_core_s: float
    load_core_s: float


@dataclass(frozen=True)
class Tier:
    """What is measured: the web process; and what is beside it, to see that it is not in the way."""

    web: psutil.Process
    beside: Sequence[psutil.Process]
    database: psycopg.Connection[Any]

    def usage(self) -> Usage:
        """What was used so far."""
        ours = (_cpu_s(self.web), sum(map(_cpu_s, self.beside)))
        return Usage(time.monotonic(), *ours, _busy_s(WEB_CORE), _busy_s(LOAD_CORE))

    @property
    def memory_kb(self) -> float:
        """Of the web process."""
        return float(self.web.memory_info().rss / 1024)

    @property
    def connections(self) -> int:
        """To the database."""
        return int(self.database.execute(CONNECTIONS).fetchall()[0][0])


def _busy_s(core: int) -> float:
    times = psutil.cpu_times(percpu=True)[core]
    return float(sum(times) - times.idle - times.iowait - times.guest - times.guest_nice)


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


class Load:
    """A process that writes or reads."""

    def __init__(self, load: Writers | Readers) -> None:
        spawning = multiprocessing.get_context("spawn")
        self._pipe, theirs = spawning.Pipe()
        self._process = spawning.Process(target=work, args=(load, theirs), daemon=True)
        self._process.start()

    @property
    def process(self) -> psutil.Process:
        """As the kernel knows it."""
        return psutil.Process(self._process.pid)

    async def ask(self, streams: int) -> Sequence[float]:
        """Have it serve so many; returns what it measured since the last time. Raises `EOFError` when it has died."""
        return await asyncio.to_thread(self._asked, streams)

    def _asked(self, streams: int) -> Sequence[float]:
        self._pipe.send(streams)
        measured: Sequence[float] = self._pipe.recv()
        return measured

    def stop(self) -> None:
        """End it."""
        with contextlib.suppress(OSError):  # it may have died
            self._pipe.send(None)
        self._process.join(10)
        self._process.kill()


async def measure(ladder: Sequence[int] = LADDER, seconds: float = SECONDS) -> list[Figure]:
    """The ladder's figures, rung by rung. Must be run on a machine with two cores at least."""
    figures: list[Figure] = []
    with _confined(LOAD_CORE), servers.throw_away() as served:
        environ = {**os.environ, **environment("scripted", served.folder), **served.urls}
        await asyncio.to_thread(prepared, environ)
        async with _tier(environ, served, max(ladder)) as (tier, writers, readers):
            for streams in ladder:
                figures += await _rung(tier, writers, readers, streams, seconds)
    return figures


@contextmanager
def _confined(core: int) -> Iterator[None]:
    """Be on one core, and all that is started meanwhile."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@asynccontextmanager
async def _tier(
    environ: Mapping[str, str], served: servers.Servers, streams: int
) -> AsyncIterator[tuple[Tier, Load, Load]]:
    keys = new_users(environ["DATABASE_URL"], USERS)
    port = free_port()
    web = started("web", ["chatsite.serve", "--port", str(port)], environ, served.folder)
    os.sched_setaffinity(web.pid, {WEB_CORE})
    try:
        while not await asyncio.to_thread(answers, port):
            web.check()
        with psycopg.connect(environ["DATABASE_URL"], autocommit=True) as database:
            runs = [run for key in keys for run in _new_runs(database, key, -(-streams // USERS))]
            writers = Load(Writers(environ["STREAMS_URL"], [run_id for _, run_id in runs]))
            readers = Load(Readers(port, runs))
            beside = [writers.process, readers.process, *(psutil.Process(child.pid) for child in served.children)]
            try:
                yield Tier(psutil.Process(web.pid), beside, database), writers, readers
            finally:
                readers.stop()
                writers.stop()
    finally:
        web.stop()


def _new_runs(database: psycopg.Connection[Any], key: str, count: int) -> list[tuple[str, UUID]]:
    return [(key, run_id) for [run_id] in database.execute(RUNS_OF, {"key": key, "runs": count}).fetchall()]


async def _rung(tier: Tier, writers: Load, readers: Load, streams: int, seconds: float) -> list[Figure]:
    await readers.ask(streams)
    await writers.ask(streams)
    await asyncio.sleep(SETTLE_S)
    await readers.ask(streams)
    await writers.ask(streams)
    before = tier.usage()
    await asyncio.sleep(seconds)
    lags_us, after = await readers.ask(streams), tier.usage()
    late_s = await writers.ask(streams)
    elapsed_s, events = after.at_s - before.at_s, len(lags_us)
    web_s, load_s = after.web_s - before.web_s, after.load_s - before.load_s
    values = {
        ("XADD to client, p50", "ms"): percentile(lags_us, 50) / 1000,
        ("XADD to client, p99", "ms"): percentile(lags_us, 99) / 1000,
        ("web CPU an event", "us"): 1e6 * web_s / max(1, events),
        ("events", "1/s"): events / elapsed_s,
        ("events that came, of those due", "%"): 100 * events / (elapsed_s / INTERVAL_S * streams),
        ("web, of its core", "%"): 100 * web_s / elapsed_s,
        ("others, of the web's core", "%"): 100 * (after.web_core_s - before.web_core_s - web_s) / elapsed_s,
        ("load, of its core", "%"): 100 * load_s / elapsed_s,
        ("others, of the load's core", "%"): 100 * (after.load_core_s - before.load_core_s - load_s) / elapsed_s,
        ("load, late by p99", "ms"): 1000 * percentile(late_s, 99),
        ("memory", "MB"): tier.memory_kb / 1024,
        ("threads", ""): tier.web.num_threads(),
        ("database connections", ""): tier.connections,
    }
    return [
        Figure(f"{streams} streams: {name}", unit, value, BOUNDS.get((streams, name)))
        for (name, unit), value in values.items()
    ]


def table(figures: Sequence[Figure]) -> str:
    """The figures, a rung a column."""
    rows: dict[str, list[str]] = {}
    for figure in figures:
        streams, _, name = figure.what.partition(" streams: ")
        rows.setdefault("streams", []).append(streams) if name.endswith("p50") else None
        rows.setdefault(f"{name} {figure.unit}", []).append(f"{figure.ours:.1f}")
    return "\n".join(f"{name:<40}" + "".join(f"{value:>9}" for value in values) for name, values in rows.items())


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Live streams of one web process on one core.")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each rung")
    parser.add_argument("--streams", default=",".join(map(str, LADDER)), help="the ladder")
    options = parser.parse_args()
    print(table(asyncio.run(measure([int(rung) for rung in options.streams.split(",")], options.seconds))))


if __name__ == "__main__":
    main()
