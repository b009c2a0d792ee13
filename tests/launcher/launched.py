"""A launcher started as a user would, and every process that ever was below it."""

from __future__ import annotations

import contextlib
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]
MARK = "PALAVER_TEST_MARK"
LOOK_EVERY_S = 0.1
CLEARED_WITHIN_S = 20
_OUTSIDE_MAKE = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}


class Launched:
    """One `python -m launcher ...`, or make, with its output and its tree."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str], folder: Path = ROOT) -> None:
        self._mark = uuid.uuid4().hex
        self._seen: set[psutil.Process] = set()
        self.lines: list[str] = []
        self._coming: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env={**_OUTSIDE_MAKE, **environ, MARK: self._mark},
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as out:
            for line in out:
                self._coming.put(line)
        self._coming.put(None)

    def wait_for(self, pattern: str, within_s: float = 120) -> re.Match[str]:
        """The first match in a line of output from here on."""
        give_up_at = time.monotonic() + within_s
        while True:
            self.tree()
            try:
                line = self._coming.get(timeout=LOOK_EVERY_S)
            except queue.Empty:
                assert time.monotonic() < give_up_at, f"no {pattern!r} in:\n{self.output}"
                continue
            assert line is not None, f"ended without {pattern!r}:\n{self.output}"
            self.lines.append(line)
            if found := re.search(pattern, line):
                return found

    def wait_for_process(self, pattern: str, within_s: float = 120) -> psutil.Process:
        """The first process below us whose command line matches."""
        give_up_at = time.monotonic() + within_s
        while True:
            for process in self.tree():
                with contextlib.suppress(psutil.Error):
                    if re.search(pattern, " ".join(process.cmdline())):
                        return process
            self._drain()
            assert self.process.poll() is None, f"ended without a process {pattern!r}:\n{self.output}"
            assert time.monotonic() < give_up_at, f"no process {pattern!r}:\n{self.output}"
            time.sleep(LOOK_EVERY_S)

    def ended(self, within_s: float = 120) -> int:
        """Its exit status, when all it printed has been read."""
        status = self.process.wait(within_s)
        self._reader.join(within_s)
        return status

    @property
    def output(self) -> str:
        """All that was printed so far."""
        self._drain()
        return "".join(self.lines)

    def _drain(self) -> None:
        with contextlib.suppress(queue.Empty):
            while line := self._coming.get_nowait():
                self.lines.append(line)

    @property
    def top(self) -> psutil.Process:
        """What was started: make, or the guard itself."""
        return psutil.Process(self.process.pid)

    @property
    def guard(self) -> psutil.Process:
        """Process A: what was started, or make's child."""
        return self.top if _runs(self.top, "launcher") else self._child_of(self.top, "launcher")

    @property
    def runner(self) -> psutil.Process:
        """Process B. What it forks shows its command line too, until it is something else."""
        return self._child_of(self.guard, "launcher.runner")

    def _child_of(self, parent: psutil.Process, module: str, within_s: float = 120) -> psutil.Process:
        give_up_at = time.monotonic() + within_s
        while True:
            for child in parent.children():
                if _runs(child, module):
                    return child
            assert time.monotonic() < give_up_at, f"no {module} below {parent}:\n{self.output}"
            time.sleep(LOOK_EVERY_S)

    def tree(self) -> list[psutil.Process]:
        """Us and all below us now; remembered for `left`."""
        with contextlib.suppress(psutil.Error):
            top = psutil.Process(self.process.pid)
            self._seen |= {top, *top.children(recursive=True)}
        return sorted(self._alive(), key=lambda process: process.pid)

    def _alive(self) -> list[psutil.Process]:
        return [process for process in self._seen if _is_alive(process)]

    def left(self) -> list[str]:
        """Whatever of it still runs: seen in the tree once, or started with our mark in its environment."""
        marked = [process for process in psutil.process_iter() if self._is_marked(process) and _is_alive(process)]
        return [_described(process) for process in {*self._alive(), *marked}]

    def _is_marked(self, process: psutil.Process) -> bool:
        try:
            return bool(process.environ().get(MARK) == self._mark)
        except (psutil.Error, OSError):
            return False

    def assert_gone(self, within_s: float) -> None:
        """Nothing of it is left, at the latest after `within_s`."""
        give_up_at = time.monotonic() + within_s
        while left := self.left():
            assert time.monotonic() < give_up_at, f"left after {within_s} s: {left}\n{self.output}"
            if self.process.poll() is not None:
                time.sleep(LOOK_EVERY_S)
            else:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(LOOK_EVERY_S)

    def end(self) -> None:
        """Clear away what a failed test left."""
        for process in {*self.tree(), *self._alive()}:
            with contextlib.suppress(psutil.Error):
                process.send_signal(signal.SIGKILL)
        self.ended()
        self.assert_gone(CLEARED_WITHIN_S)  # what works in the same folder next must find nobody there


def launcher(command: str) -> list[str]:
    """The command line of the launcher itself."""
    return [sys.executable, "-m", "launcher", command]


def wait_until(holds: Callable[[], bool], within_s: float) -> None:
    """Return as soon as it holds."""
    give_up_at = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < give_up_at, f"did not come true within {within_s} s"
        time.sleep(LOOK_EVERY_S)


def _runs(process: psutil.Process, module: str) -> bool:
    try:
        return bool(process.cmdline()[1:3] == ["-m", module])
    except psutil.Error:
        return False


def _is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _described(process: psutil.Process) -> str:
    try:
        return f"{process.pid} {' '.join(process.cmdline()) or process.name()}"
    except psutil.Error:
        return str(process.pid)
