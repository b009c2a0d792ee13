"""Run pip quietly: a live line instead of its hundreds, and one line when it fails."""

from __future__ import annotations

import os
import re
import select
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from launcher.places import ROOT, SHARED, private_folder
from launcher.problems import DISK_FULL, SetupProblem
from launcher.progress import Step

LOG = SHARED / "log" / "pip.log"
# Of the disk that was found large enough; a /tmp in memory may not be.
TEMPORARY = SHARED / "tmp"
RETRIES = 3
UNREACHABLE = re.compile(
    r"Failed to establish a new connection|NewConnectionError|NameResolutionError|Temporary failure in name resolution"
    r"|ConnectTimeoutError|ReadTimeoutError|ProxyError|Max retries exceeded|Network is unreachable|SSLError"
)
FULL = re.compile(r"No space left on device|Disk quota exceeded|\[Errno 28\]|\[Errno 122\]")
MISSING = re.compile(r"No matching distribution found for (\S+)")


class IndexUnreachable(SetupProblem):
    """No answer from the package index; nothing was changed."""


class NoSuchRelease(SetupProblem):
    """The index has no such package in that version, for this Python and machine."""


def was_cut_short(venv: Path) -> bool:
    """Whether pip was stopped, or failed, while it changed this environment."""
    return _changing(venv).exists()


def _changing(venv: Path) -> Path:
    # pip fetches everything before it changes anything: only from then on is there something to spoil.
    return venv / "palaver-changing"


class Pip:
    """pip of one virtual environment; each call raises `SetupProblem` when pip fails."""

    def __init__(self, venv: Path, step: Step, keep_open: int) -> None:
        """`keep_open` is a descriptor (a lock) that must not be given up before pip has ended."""
        self._venv = venv
        self._step = step
        self._keep_open = keep_open
        self._seen = self._unpacks = self._had = 0
        self._how_far = "asking the package index"
        private_folder(LOG.parent)
        LOG.unlink(missing_ok=True)

    def install(self, *arguments: str) -> None:
        """pip install."""
        # Python compiles what it imports; compiling all of torch and vLLM took half of the time (119 s, now 67).
        quick = ("--no-compile", "--progress-bar", "off")
        self._run("install", *quick, "--retries", str(RETRIES), *arguments)

    def uninstall(self, *names: str) -> None:
        """pip uninstall; packages that are not there are no trouble."""
        _changing(self._venv).touch()
        self._run("uninstall", "-y", *names)

    def _run(self, *arguments: str) -> None:
        shutil.rmtree(TEMPORARY, ignore_errors=True)
        private_folder(TEMPORARY)
        self._unpacks = 0
        said: list[str] = []
        with LOG.open("a") as log:
            print("$ pip", *arguments, file=log, flush=True)
            # Told to stop, we leave it running: the runner ends all its descendants on the way out.
            running = self._start(arguments)
            for line in _lines(running, idle=self._show):
                log.write(line)
                said.append(line)
                self._note(line)
        shutil.rmtree(TEMPORARY, ignore_errors=True)
        if running.wait():
            raise _problem("".join(said))
        _changing(self._venv).unlink(missing_ok=True)

    def _start(self, arguments: tuple[str, ...]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [str(self._venv / "bin/python"), "-m", "pip", "--no-input", "--disable-pip-version-check", *arguments],
            cwd=ROOT,
            env={**os.environ, "TMPDIR": str(TEMPORARY), "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(self._keep_open,),
        )

    def _note(self, line: str) -> None:
        if found := re.match(r"(?:Collecting|Requirement already satisfied:) ([\w.\-]+)", line):
            self._seen += 1
            self._how_far = f"package {self._seen} ({found[1]})"
        elif found := re.match(r"\s+Downloading (\S+?)(?:-\d\S*)? (\([\d.]+ [kMG]B\))", line):
            self._how_far = f"package {self._seen} (downloading {found[1].rpartition('/')[2]} {found[2]})"
        elif line.startswith("Installing collected packages:"):
            _changing(self._venv).touch()
            self._unpacks = line.count(",") + 1
            self._had = self._unpacked()
        self._show()

    def _show(self) -> None:
        if self._unpacks:
            self._how_far = f"unpacked {max(0, self._unpacked() - self._had)} of {self._unpacks} packages"
        self._step.at(self._how_far)

    def _unpacked(self) -> int:
        return sum(1 for _ in self._venv.glob("lib/python*/site-packages/*.dist-info"))


def _lines(running: subprocess.Popen[bytes], idle: Callable[[], None]) -> Iterator[str]:
    """Each line as it comes; calls `idle` after every second without one."""
    assert running.stdout is not None
    out = running.stdout.fileno()
    begun = b""
    while True:
        if not select.select([out], [], [], 1.0)[0]:
            idle()
            continue
        read = os.read(out, 65536)
        *whole, begun = (begun + read).split(b"\n")
        yield from (line.decode(errors="replace") + "\n" for line in whole)
        if not read:
            yield begun.decode(errors="replace")
            return


def _problem(said: str) -> SetupProblem:
    if FULL.search(said):
        return DISK_FULL
    if UNREACHABLE.search(said) and "Installing collected packages" not in said:
        return IndexUnreachable(
            "the package index cannot be reached",
            f"Check the network, proxy and pip's settings, then run the same command again (details: {LOG})",
        )
    if found := MISSING.search(said):
        return NoSuchRelease(
            f"the package index has no {found[1]} for this Python and machine",
            f"Use Python 3.11 to 3.14 on x86-64 or arm64, or another index (details: {LOG})",
        )
    errors = [line for line in said.splitlines() if line.startswith("ERROR:")] or ["pip gave no reason"]
    return SetupProblem(
        f"installing packages failed: {errors[-1].removeprefix('ERROR:').strip()}",
        f"Its whole output is in {LOG}",
    )
