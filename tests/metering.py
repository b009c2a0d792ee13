"""Counts what an act costs: SQL statements, Redis commands, and round trips to Redis."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import pytest
from django.conf import settings
from django.db import connection
from django.db.backends.signals import connection_created
from redis import Redis
from redis.asyncio.connection import AbstractConnection as AsyncConnection
from redis.client import Monitor
from redis.connection import AbstractConnection as SyncConnection


@dataclass
class Costs:
    """What was counted. `commands` are names as Redis saw them, those inside a Lua operation left out.

    `ports` are our ends of the connections: Redis sees what other processes send as well, which is not ours to count.
    """

    statements: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    round_trips: int = 0
    ports: set[str] = field(default_factory=set)

    @property
    def verbs(self) -> list[str]:
        """The first word of each statement."""
        return [statement.split()[0] for statement in self.statements]


@contextmanager
def metered(patch: pytest.MonkeyPatch) -> Iterator[Costs]:
    """Count while the block runs, in all threads."""
    costs = Costs()
    with _watching() as (redis, monitor), _logging_statements(costs.statements):
        with patch.context() as patched:
            for kind in (SyncConnection, AsyncConnection):
                patched.setattr(kind, "send_packed_command", _counting(kind.send_packed_command, costs))
            yield costs
        costs.commands = _seen(monitor, redis, costs.ports)


@contextmanager
def _logging_statements(statements: list[str]) -> Iterator[None]:
    """Django logs what a debugging cursor sends; each thread has a connection of its own, which may come later."""

    def debug(connection: Any, **_: Any) -> None:
        connection.force_debug_cursor = True

    def note(record: logging.LogRecord) -> bool:
        statements.append(record.__dict__["sql"])
        return False

    log = logging.getLogger("django.db.backends")
    level = log.level
    log.setLevel(logging.DEBUG)
    log.addFilter(note)
    connection_created.connect(debug)
    connection.force_debug_cursor = True
    try:
        yield
    finally:
        connection.force_debug_cursor = False
        connection_created.disconnect(debug)
        log.removeFilter(note)
        log.setLevel(level)


@contextmanager
def _watching() -> Iterator[tuple[Redis, Monitor]]:
    with Redis.from_url(settings.BROKER_URL) as redis, Redis.from_url(settings.BROKER_URL) as watching:
        redis.ping()  # connects, before anything is watched
        with watching.monitor() as monitor:
            yield redis, monitor


def _counting(send: Callable[..., Any], costs: Costs) -> Callable[..., Any]:
    def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
        costs.round_trips += 1
        costs.ports |= _ports(self)
        return send(self, *args, **kwargs)

    return counted


def _ports(connection: SyncConnection | AsyncConnection) -> set[str]:
    """Our end of a connection; one that has yet to connect sends a greeting of its own then."""
    if isinstance(connection, SyncConnection):
        return {str(connection._sock.getsockname()[1])} if connection._sock else set()
    return {str(connection._writer.get_extra_info("sockname")[1])} if connection._writer else set()


def _seen(monitor: Monitor, redis: Redis, ports: Collection[str]) -> list[str]:
    """The commands that came over these connections to our databases, up to a mark that we set."""
    mark = uuid4().hex
    redis.echo(mark)
    names: list[str] = []
    while True:
        seen = monitor.next_command()  # type: ignore[no-untyped-call]
        if mark in seen["command"]:
            return names
        if seen["db"] in _databases() and seen["client_port"] in ports:
            names.append(seen["command"].split()[0].upper())


def _databases() -> set[int]:
    return {int(url.rpartition("/")[2] or 0) for url in (settings.BROKER_URL, settings.STREAMS_URL)}
