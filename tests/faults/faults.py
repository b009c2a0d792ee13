"""What befalls a world: kinds of faults, drawn by dice that the seed alone decides."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import psycopg
from redis.asyncio import Redis
from redis.exceptions import RedisError

from tests.faults import bucket_log
from tests.faults.client import Client, Unserved
from tests.faults.parts import Server
from tests.faults.world import World, worker_command
from tests.stack.stack import StackBroken

T = TypeVar("T")

BETWEEN_S = (2.0, 5.0)
# Past any lease of its runs, and the reaper's period.
STOPPED_S = 14.0
OUTAGE_S = (2.0, 6.0)
SAID_BEFORE = "It is the same on every worker, so that the next attempt is spared. " * 5
CLOCKS_S = (60.0, -60.0, 0.0)
LOSE_WITHIN_S = 8.0
PULLS_WITHIN_S = 20.0
LOOK_EVERY_S = 0.02

Strike = Callable[[World, random.Random], Awaitable[None]]
AWAY = (RedisError, OSError, psycopg.Error, StackBroken, TimeoutError, Unserved)


class NotStruck(Exception):
    """The world was in no state for it."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind."""

    name: str
    strike: Strike


@dataclass(frozen=True, slots=True)
class Blow:
    """One fault at its time, with dice of its own: what it meets does not change what others do."""

    at_s: float
    fault: Fault
    seed: str


@dataclass
class Struck:
    """What came about, by kind, and what could not be brought about."""

    counts: Counter[str]
    broken: list[str]


def schedule(seed: int, seconds: float, first: Sequence[str] = ()) -> Iterator[Blow]:
    """Faults for so long: those named, then every kind as often as another, in an order that the dice choose."""
    dice = random.Random(seed)
    deck = [_by_name(name) for name in first]
    at_s = 0.0
    while True:
        at_s += dice.uniform(*BETWEEN_S)
        if at_s > seconds:
            return
        deck = deck or dice.sample(FAULTS, len(FAULTS))
        yield Blow(at_s, deck.pop(0), f"{seed} {at_s}")


async def strike(
    world: World, blows: Iterator[Blow], while_lives: asyncio.Task[None], say: Callable[[str], None]
) -> Struck:
    """Let each blow fall at its time, beside those that still last; returns when all are over."""
    struck = Struck(Counter(), [])
    began_at = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for blow in blows:
            await asyncio.wait({while_lives}, timeout=max(0.0, began_at + blow.at_s - time.monotonic()))
            if while_lives.done():
                break
            say(f"{blow.at_s:5.0f} s  {blow.fault.name}")
            group.create_task(_fall(world, blow, struck))
    return struck


async def _fall(world: World, blow: Blow, struck: Struck) -> None:
    try:
        await blow.fault.strike(world, random.Random(blow.seed))
    except (NotStruck, *AWAY) as failure:
        # Such as emptying a server that another fault keeps away just now.
        struck.broken.append(f"{blow.at_s:.0f} s {blow.fault.name}: {type(failure).__name__} {failure}")
    else:
        struck.counts[blow.fault.name] += 1


def _one_of(parts: Sequence[T], dice: random.Random) -> T:
    if not parts:
        raise NotStruck("there is none")
    return dice.choice(parts)


async def kill_worker(world: World, dice: random.Random) -> None:
    """Whatever it does just now."""
    _must(_one_of(world.workers, dice).send(signal.SIGKILL))


async def kill_worker_that_pulls(world: World, dice: random.Random) -> None:
    """Once, and again as soon as its successor begins to pull, with a queue before it."""
    worker = _one_of(world.workers, dice)
    _must(worker.send(signal.SIGKILL))
    await _until(lambda: not worker.is_ready)
    await _until(lambda: worker.is_ready)
    await asyncio.sleep(dice.random() * 0.1)
    worker.send(signal.SIGKILL)


async def pause_worker(world: World, dice: random.Random) -> None:
    """Stopped past its leases, then set going again: it believes that no time has passed."""
    worker = _one_of(world.workers, dice)
    pid = worker.pid
    _must(worker.send(signal.SIGSTOP))
    await asyncio.sleep(STOPPED_S + dice.random() * 2)
    if worker.pid == pid:
        worker.send(signal.SIGCONT)


async def stop_worker(world: World, dice: random.Random) -> None:
    """In order."""
    _must(_one_of(world.workers, dice).send(signal.SIGTERM))


async def stop_worker_then_kill(world: World, dice: random.Random) -> None:
    """Killed while it drains."""
    worker = _one_of(world.workers, dice)
    pid = worker.pid
    _must(worker.send(signal.SIGTERM))
    await asyncio.sleep(dice.random() * 5)
    if worker.pid == pid:
        worker.send(signal.SIGKILL)


async def break_engine(failure: str, world: World, dice: random.Random) -> None:
    """By a question that ends, or silences, the engine of whichever worker answers it, and all that runs there."""
    world.engines_break = True
    [key] = await asyncio.to_thread(world.users, 1)
    client = Client(world.ports, key, dice, [])
    chat = await client.call("open", "POST", "/api/chats", {})
    _must(chat.is_served)
    script = json.dumps({"failure": failure, "fail_after_tokens": dice.randrange(1, 60), "text": SAID_BEFORE})
    question = {"content": f"Break, please: {dice.random()} [[script {script}]]"}
    asked = await client.call("ask", "POST", f"/api/chats/{chat.body['id']}/messages", question)
    _must(asked.is_served)


async def end_web(number: signal.Signals, world: World, dice: random.Random) -> None:
    """Under open streams; never the last one, without which nobody could be served or refused."""
    web = _one_of(world.webs, dice)
    if not all(other.is_ready for other in world.webs):
        raise NotStruck("another is away")
    _must(web.send(number))


async def kill_reaper(world: World, dice: random.Random) -> None:
    """One of them."""
    _must(_one_of(world.reapers, dice).send(signal.SIGKILL))


async def set_clock(world: World, dice: random.Random) -> None:
    """A worker moves to a machine whose clock is a minute off, or right again."""
    worker = _one_of(world.workers, dice)
    module, *arguments = worker_command(worker.name)
    worker.command = ("tests.faults.skewed", str(dice.choice(CLOCKS_S)), module, *arguments)
    _must(worker.send(signal.SIGTERM))


async def empty(which: str, world: World, _dice: random.Random) -> None:
    """FLUSHALL."""
    async with _client(world, which) as redis:
        await redis.flushall()


async def trim(world: World, dice: random.Random) -> None:
    """Each stream loses all but its last few entries, under its readers."""
    keep = dice.randrange(4)
    async with _client(world, "streams") as redis:
        async for key in redis.scan_iter("run:*"):
            await redis.xtrim(key, maxlen=keep, approximate=False)


async def cut_redis(which: str, world: World, _dice: random.Random) -> None:
    """Every client's connection, subscribers' too."""
    async with _client(world, which) as redis:
        for kind in ("normal", "pubsub"):
            await redis.client_kill_filter(_type=kind, skipme=True)


async def cut_postgres(world: World, _dice: random.Random) -> None:
    """Every client's connection."""
    await asyncio.to_thread(_terminate_backends, world)


def _terminate_backends(world: World) -> None:
    with world.database() as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )


async def restart(which: str, number: signal.Signals, world: World, _dice: random.Random) -> None:
    """With its data, and at once."""
    _must(_server(world, which).send(number))


async def restart_empty(which: str, world: World, _dice: random.Random) -> None:
    """Killed, and its data lost."""
    server = _server(world, which)
    async with server.down(signal.SIGKILL):
        bucket_log.put_away(server)


async def take_away(which: str, number: signal.Signals, world: World, dice: random.Random) -> None:
    """Gone for some seconds."""
    async with _server(world, which).down(number):
        await asyncio.sleep(dice.uniform(*OUTAGE_S))


async def lose_reply(which: str, command: bytes, world: World, _dice: random.Random) -> None:
    """A command runs, and the worker that sent it never hears so."""
    wire = world.wires[("broker", "streams").index(which)]
    if not await wire.lose_reply(command, LOSE_WITHIN_S):
        raise NotStruck(f"no {command.decode()} came")


FAULTS = (
    Fault("worker killed", kill_worker),
    Fault("worker killed, its successor as it pulls", kill_worker_that_pulls),
    Fault("worker paused past its leases", pause_worker),
    Fault("worker stopped", stop_worker),
    Fault("worker stopped, and killed while it drains", stop_worker_then_kill),
    Fault("worker's clock set", set_clock),
    Fault("engine ends", partial(break_engine, "engine_dead")),
    Fault("engine falls silent", partial(break_engine, "engine_silent")),
    Fault("web killed", partial(end_web, signal.SIGKILL)),
    Fault("web stopped", partial(end_web, signal.SIGTERM)),
    Fault("reaper killed", kill_reaper),
    Fault("broker emptied", partial(empty, "broker")),
    Fault("streams emptied", partial(empty, "streams")),
    Fault("streams trimmed", trim),
    Fault("broker's connections cut", partial(cut_redis, "broker")),
    Fault("streams' connections cut", partial(cut_redis, "streams")),
    Fault("postgres' connections cut", cut_postgres),
    Fault("broker killed", partial(restart, "broker", signal.SIGKILL)),
    Fault("streams killed", partial(restart, "streams", signal.SIGKILL)),
    Fault("postgres stopped at once", partial(restart, "postgres", signal.SIGQUIT)),
    Fault("broker killed, its data lost", partial(restart_empty, "broker")),
    Fault("streams killed, their data lost", partial(restart_empty, "streams")),
    Fault("broker away", partial(take_away, "broker", signal.SIGTERM)),
    Fault("streams away", partial(take_away, "streams", signal.SIGTERM)),
    Fault("postgres away", partial(take_away, "postgres", signal.SIGINT)),
    Fault("reply to XADD lost", partial(lose_reply, "streams", b"XADD")),
    Fault("reply to BRPOP lost", partial(lose_reply, "broker", b"BRPOP")),
)


def _by_name(name: str) -> Fault:
    return next(fault for fault in FAULTS if fault.name == name)


def _server(world: World, which: str) -> Server:
    return next(server for server in world.servers if server.name == which)


def _client(world: World, which: str) -> Redis:
    return world.redis_of(_server(world, which))


def _must(has_struck: bool) -> None:
    if not has_struck:
        raise NotStruck("it is not there just now")


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PULLS_WITHIN_S):
        while not condition():  # noqa: ASYNC110  (nobody to wake us)
            await asyncio.sleep(LOOK_EVERY_S)
