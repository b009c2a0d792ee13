"""Web, reaper and workers side by side, by honcho, until one of them does not come up or we are told to stop."""

from __future__ import annotations

import multiprocessing
import os
import re
import shlex
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType

from honcho.manager import Manager
from honcho.printer import Message, Printer

from launcher import stopping
from launcher.child import Child
from launcher.places import ROOT
from launcher.problems import SetupProblem

STOPPED = re.compile(r"(\S+) stopped \(rc=(-?\d+)\)")


@dataclass(frozen=True)
class Process:
    """What to keep running: a Python module with its arguments and its whole environment."""

    name: str
    module: Sequence[str]
    environ: Mapping[str, str]

    @property
    def command(self) -> str:
        """For honcho's shell, which it replaces: signals must reach the process itself."""
        return "exec " + shlex.join([sys.executable, "-m", "launcher.keeper", *self.module])


class Console(Printer):  # type: ignore[misc]  # honcho has no types
    """Honcho's output without its own chatter; remembers who stopped first."""

    first_stopped: tuple[str, int] | None = None

    def write(self, message: Message) -> None:
        """Print one line of a process."""
        if message.name != "system":
            super().write(message)
        elif self.first_stopped is None and (found := STOPPED.match(message.data)):
            self.first_stopped = found[1], int(found[2])


class Runner(Manager):  # type: ignore[misc]
    """Honcho's manager within our bounds."""

    asked_to_stop = False

    def terminate(self) -> None:
        """Stop everything; what is not gone when the bound is over is killed."""
        stopping.begin_bound()
        if not self._all_started():
            raise SystemExit(128 + signal.SIGTERM)  # honcho cannot stop what it has not heard of yet
        super().terminate()


def run(processes: Sequence[Process], servers: Sequence[Child], announce: Callable[[], None]) -> None:
    """Run until asked to stop, with `announce` beside them.

    Leaves by `SystemExit`, or by `SetupProblem` when one of them ended by itself.
    """
    multiprocessing.set_start_method("fork")  # what honcho is written for
    console = Console(sys.stdout, width=max(len(process.name) for process in processes))
    runner = Runner(console)
    for process in processes:
        runner.add_process(process.name, process.command, env=dict(process.environ), cwd=str(ROOT))
    announcer = multiprocessing.Process(target=_aside, args=(announce,), daemon=True)
    announcer.start()
    ended_servers = _stop_with_servers(runner, servers)
    runner.loop()
    announcer.terminate()
    _tell_why(runner, console, ended_servers)


def _aside(announce: Callable[[], None]) -> None:
    for signum in (signal.SIGTERM, signal.SIGALRM):
        signal.signal(signum, signal.SIG_DFL)
    announce()


def _stop_with_servers(runner: Runner, servers: Sequence[Child]) -> list[str]:
    """Have the runner stop when a server ends; gives a list that will hold its name."""
    ended: list[str] = []
    ours = os.getpid()

    def look(_signum: int, _frame: FrameType | None) -> None:
        if os.getpid() != ours:
            return  # honcho forks a process to watch each of its own, and that inherits this
        gone = [server.name for server in servers if not server.lives]
        if gone and not ended:
            ended.extend(gone)
            runner.terminate()

    signal.signal(signal.SIGCHLD, look)
    return ended


def _tell_why(runner: Runner, console: Console, ended_servers: Sequence[str]) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if ended_servers:
        raise SetupProblem(f"{ended_servers[0]} ended by itself", "Its log in .palaver/log says why; then: make run")
    if runner.returncode in (128 + signal.SIGINT, 128 + signal.SIGTERM):
        raise SystemExit(runner.returncode)
    name, status = console.first_stopped or ("a process", runner.returncode)
    raise SetupProblem(f"{name} ended by itself with status {status}", "Its last lines above say why; then: make run")
