"""The whole product as an operator runs it: servers, workers, web processes and reapers, all of them mortal."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from redis.asyncio import Redis

from launcher.account import stand_in
from launcher.child import free_port
from tests.faults import audit
from tests.faults.parts import Death, Part, Server, Web, Worker, server_over
from tests.faults.proxy import Proxy
from tests.stack.stack import MODEL, environment, new_users, prepared


@dataclass(frozen=True)
class Plan:
    """How many of each there are, and what their processes read from the environment beside the usual."""

    workers: int = 2
    webs: int = 2
    reapers: int = 2
    wishes: Mapping[str, str] = field(default_factory=dict)
    through: Sequence[str] = ()  # a module that runs the modules of workers and web processes, and its arguments
    is_watched: bool = True  # the database logs bills, and the last worker has wires that can lose a reply


@dataclass(eq=False)
class World:
    """A running product. The last worker reaches both Redis through wires that can lose a reply, if it is watched."""

    folder: Path
    environ: dict[str, str]
    postgres: Server
    broker: Server
    streams: Server
    workers: list[Worker] = field(default_factory=list)
    webs: list[Web] = field(default_factory=list)
    reapers: list[Part] = field(default_factory=list)
    wires: list[Proxy] = field(default_factory=list)
    engines_break: bool = False  # from now on a worker may rightly end because of its engine

    @property
    def servers(self) -> Sequence[Server]:
        """What everything else needs."""
        return (self.postgres, self.broker, self.streams)

    @property
    def parts(self) -> Sequence[Part]:
        """All of it."""
        return (*self.servers, *self.workers, *self.webs, *self.reapers)

    @property
    def deaths(self) -> Sequence[Death]:
        """All ends so far."""
        return sorted((death for part in self.parts for death in part.deaths), key=lambda death: death.at_s)

    @property
    def database_url(self) -> str:
        """Where the rows are."""
        return self.environ["DATABASE_URL"]

    @property
    def broker_url(self) -> str:
        """Where rooms and queues are."""
        return self.environ["BROKER_URL"]

    @property
    def streams_url(self) -> str:
        """Where the streams are."""
        return self.environ["STREAMS_URL"]

    @property
    def ports(self) -> Sequence[int]:
        """Of the web processes."""
        return [web.port for web in self.webs]

    def users(self, count: int) -> Sequence[str]:
        """Make users; returns a key of each."""
        return new_users(self.database_url, count)

    def database(self) -> psycopg.Connection[Any]:
        """A connection of ours to the rows."""
        return psycopg.connect(self.database_url, autocommit=True, connect_timeout=5)

    def redis_of(self, which: Server) -> Redis:
        """A client of ours to the broker or the streams."""
        url = self.broker_url if which is self.broker else self.streams_url
        return Redis.from_url(url, socket_timeout=5, socket_connect_timeout=5)

    async def whole(self) -> None:
        """Return when every part serves. Raises `StackBroken`."""
        for part in self.parts:
            part.send(signal.SIGCONT)
        for part in self.parts:
            await part.ready()

    def tails(self) -> str:
        """The last lines of all logs."""
        return "\n".join(part.tail() for part in self.parts)


def new_folder() -> Path:
    """A folder that a server's unprivileged user can enter."""
    folder = Path(tempfile.mkdtemp(prefix="palaver-faults-"))
    folder.chmod(0o711)
    return folder


def remove(folder: Path) -> None:
    """Take a world's folder away, with what stands in for it elsewhere."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.rmtree(stand_in(folder), ignore_errors=True)


@asynccontextmanager
async def running(plan: Plan, folder: Path) -> AsyncIterator[World]:
    """A world over a folder of its own, for as long as the block lasts. Raises `StackBroken`."""
    async with AsyncExitStack() as stack:
        world = _with_servers(folder, plan)
        for server in world.servers:
            await stack.enter_async_context(server.kept())
        for server in world.servers:
            await server.ready()
        await asyncio.to_thread(prepared, world.environ)
        if plan.is_watched:
            await asyncio.to_thread(_install_audit, world)
            await _add_wires(world, stack)
        _add_processes(world, plan)
        for part in (*world.workers, *world.webs, *world.reapers):
            await stack.enter_async_context(part.kept())
        await world.whole()
        yield world


def _with_servers(folder: Path, plan: Plan) -> World:
    password = secrets.token_urlsafe(24)
    ports = {name: free_port() for name in ("postgres", "broker", "streams")}
    urls = {
        "DATABASE_URL": f"postgres://palaver:{password}@127.0.0.1:{ports['postgres']}/palaver",
        "BROKER_URL": f"redis://:{password}@127.0.0.1:{ports['broker']}/0",
        "STREAMS_URL": f"redis://:{password}@127.0.0.1:{ports['streams']}/0",
    }
    return World(
        folder,
        {**os.environ, **environment("scripted", folder), **urls, **plan.wishes},
        server_over("postgres", "postgres", folder, ports["postgres"], password),
        server_over("valkey", "broker", folder, ports["broker"], password),
        server_over("valkey", "streams", folder, ports["streams"], password),
    )


def _install_audit(world: World) -> None:
    with world.database() as connection:
        connection.execute(audit.INSTALL)


async def _add_wires(world: World, stack: AsyncExitStack) -> None:
    for url in (world.broker_url, world.streams_url):
        world.wires.append(await stack.enter_async_context(Proxy(url).listening()))


def _add_processes(world: World, plan: Plan) -> None:
    world.workers += [_worker(world, number, plan.through) for number in range(1, plan.workers + 1)]
    for name, wire in zip(("BROKER_URL", "STREAMS_URL"), world.wires, strict=False):
        world.workers[-1].environ = {**world.workers[-1].environ, name: wire.url}
    world.webs += [_web(world, number, plan.through) for number in range(1, plan.webs + 1)]
    world.reapers += [_reaper(world, number) for number in range(1, plan.reapers + 1)]


def _worker(world: World, number: int, through: Sequence[str]) -> Worker:
    name = f"worker{number}"
    # Each with answers of its own: what a reader has of one attempt cannot pass for another's.
    own = {"READY_FILE": str(world.folder / f"{name}.ready"), "SCRIPT_SALT": str(number)}
    environ = {**world.environ, **own}
    return Worker(name, (*through, *worker_command(name)), environ, world.folder)


def worker_command(name: str) -> Sequence[str]:
    """The module and arguments of a worker that is called so."""
    return ("inference.worker", "--model", MODEL, "--worker-name", f"{name}@faults")


def _web(world: World, number: int, through: Sequence[str]) -> Web:
    port = free_port()
    web = Web(f"web{number}", (*through, "chatsite.serve", "--port", str(port)), world.environ, world.folder)
    web.port = port
    return web


def _reaper(world: World, number: int) -> Part:
    return Part(f"reaper{number}", ("manage", "reaper"), world.environ, world.folder)
