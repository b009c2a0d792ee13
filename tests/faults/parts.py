"""Processes that are kept running: what ends is started again, as an init system would, and each death is noted."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.serving import PASSWORD, pid_file
from tests.stack.stack import Process, StackBroken, started

RESTART_AFTER_S = 0.5
LOOK_EVERY_S = 0.05
READY_WITHIN_S = 240  # a real engine takes a minute or two to load
STOP_WITHIN_S = 20


@dataclass(frozen=True, slots=True)
class Death:
    """One process's end: whether we brought it about, and whether it served by then."""

    name: str
    at_s: float  # of the monotonic clock
    status: int
    is_ours: bool
    was_ready: bool


@dataclass(eq=False)
class Part:
    """One place in the world that a process fills, its successor after it."""

    name: str
    command: Sequence[str]  # a module and its arguments, for the next start
    environ: Mapping[str, str]
    folder: Path
    deaths: list[Death] = field(default_factory=list)
    _process: Process | None = None
    _is_blamed: bool = False
    _wanted: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_alive(self) -> bool:
        """Whether its process runs, or is stopped by a signal."""
        return self._process is not None and self._process.popen.poll() is None

    @property
    def is_ready(self) -> bool:
        """Whether it serves."""
        return self.is_alive

    @property
    def pid(self) -> int:
        """Its present process, or its last one."""
        assert self._process is not None, f"{self.name} was never started"
        return self._process.pid

    def send(self, number: signal.Signals) -> bool:
        """Signal its process; False while there is none. What that brings about is ours."""
        if not self.is_alive:
            return False
        if number is not signal.SIGCONT:
            self._is_blamed = True
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._target(), number)
        return True

    @asynccontextmanager
    async def down(self, number: signal.Signals) -> AsyncIterator[None]:
        """End it, and start it again only behind the block."""
        self._wanted.clear()
        try:
            await self.end(number)
            yield
        finally:
            self._wanted.set()

    async def end(self, number: signal.Signals) -> None:
        """Signal it and wait until it is gone, by force where that takes too long."""
        self.send(number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_WITHIN_S):
                await self._gone()
        while self.is_alive:
            self.send(signal.SIGKILL)
            await self._gone()

    async def ready(self) -> None:
        """Return when it serves. Raises `StackBroken` when that takes too long."""
        try:
            async with asyncio.timeout(READY_WITHIN_S):
                while not self.is_ready:  # noqa: ASYNC110  (nobody to wake us)
                    await asyncio.sleep(LOOK_EVERY_S)
        except TimeoutError as late:
            raise StackBroken(f"{self.name} is not ready\n{self.tail()}") from late

    def tail(self) -> str:
        """The last lines of its log."""
        return self._process.tail() if self._process else f"{self.name} was never started"

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Keep it running meanwhile; afterwards it is gone."""
        self._wanted.set()
        keeping = asyncio.create_task(self._keep(), name=f"keep-{self.name}")
        try:
            yield
        finally:
            keeping.cancel()
            await asyncio.wait({keeping})
            self.send(signal.SIGCONT)
            await self.end(signal.SIGTERM)

    async def _keep(self) -> None:
        while True:
            await self._wanted.wait()
            self._start()
            was_ready = False
            while self.is_alive:
                was_ready = was_ready or self.is_ready
                await asyncio.sleep(LOOK_EVERY_S)
            self._note_death(was_ready)
            await asyncio.sleep(RESTART_AFTER_S)

    def _start(self) -> None:
        self._is_blamed = False
        self._process = started(self.name, self.command, self.environ, self.folder)

    def _note_death(self, was_ready: bool) -> None:
        assert self._process is not None
        status = self._process.popen.wait()
        self.deaths.append(Death(self.name, time.monotonic(), status, self._is_blamed, was_ready))

    async def _gone(self) -> None:
        while self.is_alive:  # noqa: ASYNC110  (nobody to wake us)
            await asyncio.sleep(LOOK_EVERY_S)

    def _target(self) -> int:
        return self.pid


class Worker(Part):
    """A GPU worker; its file says that it takes runs."""

    @property
    def is_ready(self) -> bool:
        return self.is_alive and self._ready_file.exists()

    @property
    def _ready_file(self) -> Path:
        return Path(self.environ["READY_FILE"])

    def _start(self) -> None:
        self._ready_file.unlink(missing_ok=True)
        super()._start()


class Web(Part):
    """A web process, on a port that stays its own."""

    port = 0
    _listens = 0  # the pid that was seen to

    @property
    def is_ready(self) -> bool:
        if self.is_alive and self._listens != self.pid and _listens_on(self.port):
            self._listens = self.pid
        return self.is_alive and self._listens == self.pid


class Server(Part):
    """A server of ours; signals go to itself, not to the process that minds it."""

    @property
    def place(self) -> Path:
        """The folder of its data."""
        return self.folder / self.name

    @property
    def is_ready(self) -> bool:
        return self.is_alive and pid_file(self.place).exists()

    def _start(self) -> None:
        pid_file(self.place).unlink(missing_ok=True)
        super()._start()

    def _target(self) -> int:
        try:
            return int(pid_file(self.place).read_text())
        except FileNotFoundError:
            return self.pid


def _listens_on(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def server_over(kind: str, name: str, folder: Path, port: int, password: str) -> Server:
    """A server over a folder of its own below `folder`."""
    place = folder / name
    place.mkdir()
    place.chmod(0o711)  # for the user that PostgreSQL runs as where we are root
    command = ["tests.faults.serving", kind, str(place), str(port)]
    return Server(name, command, {**os.environ, PASSWORD: password}, folder)
