"""What one run costs each part of the product: rows, commands, bytes and CPU time, which docs/scale.md multiplies.

    MODEL_PATH=.palaver/models/SmolLM2-135M-Instruct python -m bench.footprint [--runs 200] [--chars 40]

A product of its own, servers included, on the scripted engine: no model is loaded. Each run is asked in a new chat, and
read to its end over its event stream. Differences of what the servers and the kernel count, over the number of runs;
what they do at rest is measured before, and taken off.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack

import psutil
from redis import Redis

from bench.pressure import Answers, User, users
from tests.faults.parts import Part
from tests.faults.world import Plan, World, new_folder, remove, running
from tests.sse_client import Api, Reading

AT_ONCE = 8
REST_S = 30.0
SCRIPT = {
    "SCRIPT_SLOTS": "32",
    "SCRIPT_TOKENS_PER_S": "40",
    "REQUESTS_PER_MINUTE": "1000000",
    "STREAMS_PER_USER": "1000",
}
POSTGRES = """
    SELECT xact_commit::float AS commits, tup_inserted::float AS "rows inserted", tup_updated::float AS "rows updated",
           (pg_current_wal_lsn() - '0/0')::float AS "bytes of WAL",
           pg_database_size(current_database())::float AS "bytes kept",
           (SELECT coalesce(sum(output_tokens), 0) FROM chat_run)::float AS "tokens of answers"
      FROM pg_stat_database WHERE datname = current_database()
"""

Counts = dict[str, float]


def counts(world: World) -> Counts:
    """Everything that is counted, since the servers' start."""
    found = _of_postgres(world)
    for name, url in (("broker", world.broker_url), ("streams", world.streams_url)):
        found |= _of_redis(name, url)
    for part in (*world.webs, *world.workers, *world.reapers, *world.servers):
        found[f"CPU ms of {part.name}"] = 1000 * _cpu_s(part)
    return found


def _of_postgres(world: World) -> Counts:
    with world.database() as database:
        cursor = database.execute(POSTGRES)
        names = [column.name for column in cursor.description or ()]
        return {f"postgres: {name}": count for name, count in zip(names, cursor.fetchall()[0], strict=True)}


def _of_redis(name: str, url: str) -> Counts:
    with Redis.from_url(url) as redis:
        info: Mapping[str, float] = redis.info()
    return {
        f"{name}: commands": info["total_commands_processed"],
        f"{name}: CPU us of its thread": 1e6 * (info["used_cpu_user_main_thread"] + info["used_cpu_sys_main_thread"]),
        f"{name}: bytes in": info["total_net_input_bytes"],
        f"{name}: bytes out": info["total_net_output_bytes"],
        f"{name}: bytes kept": info["used_memory"],
    }


def _cpu_s(part: Part) -> float:
    """Of the process and all that it has started."""
    process = psutil.Process(part.pid)
    times = [each.cpu_times() for each in (process, *process.children(recursive=True))]
    return float(sum(each.user + each.system for each in times))


async def one(user: User) -> None:
    """Ask, and read to the end."""
    api = Api(user.world.ports[0], user.key)
    asked = await api.ask(user.answers.question())
    await api.read(asked["stream"], Reading())


async def measured(world: World, runs: int, chars: float) -> tuple[Counts, float]:
    """Per run, with what was counted at rest taken off; and the seconds that it all took."""
    [user] = users(world, ["pro"], Answers(median=chars))
    for _ in range(AT_ONCE):
        await one(user)
    before_rest = counts(world)
    await asyncio.sleep(REST_S)
    before = counts(world)
    began_at = time.monotonic()
    await _all(user, runs)
    seconds = time.monotonic() - began_at
    after = counts(world)
    at_rest = {name: (before[name] - before_rest[name]) / REST_S * seconds for name in before}
    return {name: (after[name] - before[name] - at_rest[name]) / runs for name in before}, seconds


async def _all(user: User, runs: int) -> None:
    left = iter(range(runs))

    async def lane() -> None:
        for _ in left:
            await one(user)

    await asyncio.gather(*(lane() for _ in range(AT_ONCE)))


async def main(runs: int, chars: float) -> None:
    """Measure and print."""
    folder = new_folder()
    async with AsyncExitStack() as stack:
        stack.callback(remove, folder)
        world = await stack.enter_async_context(running(Plan(1, webs=1, reapers=1, wishes=SCRIPT), folder))
        found, seconds = await measured(world, runs, chars)
        print(f"{runs} runs, {AT_ONCE} at once, in {seconds:.0f} s; of each:")
        for name, count in found.items():
            print(f"  {name:40} {count:12,.1f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="What a run costs each part.")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--chars", type=float, default=400, help="of the median answer")
    options = parser.parse_args()
    asyncio.run(main(options.runs, options.chars))
