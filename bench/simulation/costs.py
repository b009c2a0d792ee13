"""What each operation of the scheduler takes, by how many runs wait and by how many workers wait for a message.

In CPU time, so that others on the machine do not count: of the one thread in which a server runs commands (with what it
reads and writes for them), and of this process for the order between tiers.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import cast
from uuid import uuid4

from redis import ConnectionPool, Redis
from uuid6 import uuid7

from scheduler.budgets import Reservation, TokenBuckets
from scheduler.dispensable import DispensableRedis
from scheduler.fairness import FairOrder
from scheduler.limits import Limits
from scheduler.room import PAGE, Correction, Newcomer, Room, queue_name, room_key

MODEL, TIER = "costs", "free"
RUNS_A_USER = 2
COST = 600
CALLS, PUSHES = 200, 50
LIMITS = Limits(budget_tokens=1_000_000, refill_tokens_per_hour=1, concurrency=2, max_output_tokens=512)
BLOCKED = (0, 75, 500, 1000, 2000)


def report(most_waiting: int, url: str) -> None:
    """Print a table for each."""
    with Redis.from_url(url) as redis:
        redis.flushdb()
        _report_order()
        _report_buckets(redis, url)
        _report_blocked(redis, url)
        _report_room(redis, most_waiting)


def _report_order() -> None:
    for tiers in (3, 30):
        order = FairOrder()
        order.weigh({f"tier{number}": 1 for number in range(tiers)})
        print(f"order of {tiers} tiers: a run's way through a worker {_timed(partial(_pass, order)):.1f} us")


def _pass(order: FairOrder) -> None:
    first = order.ranked()[0]
    order.start(first, COST)
    order.correct(first, COST, 200)
    order.rest(())


def _timed(act: Callable[[], object]) -> float:
    """Microseconds of one call."""
    began_at = time.process_time()
    for _ in range(CALLS * 10):
        act()
    return (time.process_time() - began_at) / (CALLS * 10) * 1e6


def _report_buckets(redis: Redis, url: str) -> None:
    buckets = TokenBuckets(DispensableRedis(url))
    for users in (1000, 50_000):
        held = [Reservation(uuid4(), uuid7()) for _ in range(users)]
        for reservation in held:
            buckets.reserve(reservation, COST, LIMITS)
        later = iter(held)
        reserve = _by_server(redis, lambda: buckets.reserve(Reservation(uuid4(), uuid7()), COST, LIMITS))
        settle = _by_server(redis, lambda: buckets.settle(next(later), 200))  # noqa: B023
        print(f"budgets of {users:,} users: reserve {reserve:.1f} us, settle {settle:.1f} us")


def _report_room(redis: Redis, most_waiting: int) -> None:
    room, waiting = Room(redis, MODEL, TIER), 0
    for count in (10**power for power in range(1, 10) if 10**power <= most_waiting):
        for _ in range(0, count - waiting, PAGE):
            room.release(0, _newcomers(min(PAGE, count - waiting)))
        waiting = redis.zcard(room_key(MODEL, TIER))
        _print_room(redis, room, waiting)


def _print_room(redis: Redis, room: Room, waiting: int) -> None:
    """Each operation so that as many wait behind it as before."""
    users = deque(newcomer.user_id for newcomer in _newcomers(CALLS))
    coming, short = iter(_newcomers(CALLS)), _newcomers(CALLS)
    admit = _by_server(redis, lambda: room.release(0, [next(coming)]))
    release = _by_server(
        redis, lambda: room.release(1, departed=[uuid7()], corrections=[Correction(users.pop(), COST, 200)])
    )
    room.release(0, short)
    place = _by_server(redis, lambda: room.position(short[0].run_id))
    remove = _by_server(redis, lambda: room.remove(short.pop()))
    print(
        f"room of {waiting:9,}: admit {admit:.1f} us, release with a correction {release:.1f} us,"
        f" position {place:.1f} us, remove {remove:.1f} us",
        flush=True,
    )


def _newcomers(count: int) -> list[Newcomer]:
    users = [uuid4() for _ in range(-(-count // RUNS_A_USER))]
    return [Newcomer(uuid7(), users[number // RUNS_A_USER], COST) for number in range(count)]


def _by_server(redis: Redis, act: Callable[[], object], calls: int = CALLS) -> float:
    """Microseconds of the server's thread for one call."""
    before_s = _thread_s(redis)
    for _ in range(calls):
        act()
    return (_thread_s(redis) - before_s) / calls * 1e6


def _thread_s(redis: Redis) -> float:
    """CPU time of the thread that runs commands."""
    info = cast(dict[str, float], redis.info("cpu"))
    return info["used_cpu_user_main_thread"] + info["used_cpu_sys_main_thread"]


def _report_blocked(redis: Redis, url: str) -> None:
    """A message's way to one of many workers that wait for one, each on the queues of three tiers."""
    queues = [queue_name(MODEL, tier) for tier in ("pro", "plus", TIER)]
    for workers in BLOCKED:
        with _blocked(redis, url, queues, workers):
            sent = _by_server(redis, lambda: redis.lpush(queues[-1], "x"), PUSHES)
            print(f"{workers:,} workers wait for a message: sending one {sent:.1f} us")
        redis.delete(*queues)


@contextmanager
def _blocked(redis: Redis, url: str, queues: list[str], count: int) -> Iterator[None]:
    """So many connections that wait, for as long as the block lasts."""
    with ExitStack() as stack:
        pool = ConnectionPool.from_url(url, max_connections=count or 1)
        stack.callback(pool.disconnect)
        for _ in range(count):
            connection = pool.get_connection()
            connection.send_command("BRPOP", *queues, 0)  # type: ignore[no-untyped-call]
        while redis.info("clients")["blocked_clients"] < count:
            time.sleep(0.05)
        yield
