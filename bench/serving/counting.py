"""What servers and the kernel count: rows, commits, commands, bytes, CPU time."""

from __future__ import annotations

from collections.abc import Mapping

from redis import Redis

from bench.serving.meter import cpu_s
from tests.faults.world import World

POSTGRES = """
    SELECT xact_commit::float AS commits, tup_inserted::float AS "rows inserted", tup_updated::float AS "rows updated",
           (pg_current_wal_lsn() - '0/0')::float AS "bytes of WAL",
           pg_database_size(current_database())::float AS "bytes kept"
      FROM pg_stat_database WHERE datname = current_database()
"""

Counts = dict[str, float]


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


def less(counted: Counts, before: Counts) -> Counts:
    """What came since."""
    return {name: counted[name] - before[name] for name in counted}


def over(counted: Counts, number: float) -> Counts:
    """Of each of so many."""
    return {name: count / number for name, count in counted.items()}
