"""What one run takes of each part: rows, commands, bytes and CPU time, which docs/scale.md multiplies."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence

from redis import Redis

from bench.serving import script
from bench.serving.bench import Bench, Ours
from bench.serving.figures import Figure
from bench.serving.job import Job
from bench.serving.meter import cpu_s
from tests.faults.world import World

SHORT, LONG = 16, 216
RUNS, AT_ONCE = 96, 8
REST_S = 10.0
SETTLE_S = 3.0
POSTGRES = """
    SELECT xact_commit::float AS commits, tup_inserted::float AS "rows inserted", tup_updated::float AS "rows updated",
           (pg_current_wal_lsn() - '0/0')::float AS "bytes of WAL",
           pg_database_size(current_database())::float AS "bytes kept"
      FROM pg_stat_database WHERE datname = current_database()
"""

Counts = dict[str, float]


async def costs(bench: Bench) -> Sequence[Figure]:
    """Runs with short answers, then with long ones: what each takes, and by the difference what a token takes."""
    ours = await bench.ours(script.fast_streams())
    await _asked(bench, ours, AT_ONCE, SHORT)
    before, began_at = counts(ours.site.world), time.monotonic()
    await asyncio.sleep(REST_S)
    rest = _over(_less(counts(ours.site.world), before), time.monotonic() - began_at)
    short = await _of_each(bench, ours, SHORT, rest)
    long = await _of_each(bench, ours, LONG, rest)
    token = _over(_less(long, short), LONG - SHORT)
    return [
        figure
        for name in short
        for figure in (
            Figure(f"a run: {name}", "", short[name] - SHORT * token[name], details={"at 16 tokens": short[name]}),
            Figure(f"a token: {name}", "", token[name]),
        )
    ]


async def _of_each(bench: Bench, ours: Ours, tokens: int, rest: Counts) -> Counts:
    """Of a run with such an answer, with what happens anyway taken off."""
    before, began_at = counts(ours.site.world), time.monotonic()
    await _asked(bench, ours, RUNS, tokens)
    found, seconds = _less(counts(ours.site.world), before), time.monotonic() - began_at
    bench.say(f"{RUNS} runs of {tokens} tokens in {seconds:.0f} s")
    return {name: (count - rest[name] * seconds) / RUNS for name, count in found.items()}


async def _asked(bench: Bench, ours: Ours, runs: int, tokens: int) -> None:
    lanes = ours.lanes(runs)
    job = Job(ours.surface, ours.port, lanes, runs, at_once=AT_ONCE, max_output_tokens=tokens, patience_s=60)
    await bench.run(job, ours.pids)
    await asyncio.sleep(SETTLE_S)  # the statistics of PostgreSQL come late


def counts(world: World) -> Counts:
    """Everything that is counted, since the servers' start."""
    with world.database() as database:
        cursor = database.execute(POSTGRES)
        names = [column.name for column in cursor.description or ()]
        found = {f"PostgreSQL, {name}": float(count) for name, count in zip(names, cursor.fetchall()[0], strict=True)}
    for name, url in (("broker", world.broker_url), ("streams", world.streams_url)):
        found |= _of_redis(name, url)
    for part in (*world.webs, *world.workers, *world.reapers, *world.servers):
        found[f"CPU ms of {part.name}"] = 1000 * cpu_s(part.pid)
    return found


def _of_redis(name: str, url: str) -> Counts:
    with Redis.from_url(url) as redis:
        info: Mapping[str, float] = redis.info()
    return {
        f"{name}, commands": info["total_commands_processed"],
        f"{name}, CPU us of its thread": 1e6 * (info["used_cpu_user_main_thread"] + info["used_cpu_sys_main_thread"]),
        f"{name}, bytes in": info["total_net_input_bytes"],
        f"{name}, bytes out": info["total_net_output_bytes"],
        f"{name}, bytes kept": info["used_memory"],
    }


def _less(counted: Counts, before: Counts) -> Counts:
    return {name: counted[name] - before[name] for name in counted}


def _over(counted: Counts, number: float) -> Counts:
    return {name: count / number for name, count in counted.items()}
