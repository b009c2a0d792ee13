"""The whole test suite as runs of pytest side by side: one mostly computes, the others mostly wait."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from launcher.places import ROOT

# What waits: for the real engine to load, for processes to start and to die, for leases to run out. In lanes that are
# about as long as each other, and with the first one as many as keep two cores busy. All of the real engine is in one.
WAITING: Mapping[str, Sequence[str]] = {
    "engines": (
        "tests/contract",
        "tests/launcher",
        "tests/openai",
        "tests/stack",
    ),
    "faults": (
        "tests/faults",
        "tests/chat",
    ),
    "machines": (
        "tests/bench",
        "tests/budgets",
        "tests/clients",
        "tests/cluster",
        "tests/deploy",
        "tests/hosts",
        "tests/loadtest",
        "tests/operations",
        "tests/postgres",
        "tests/proxied",
        "tests/rollouts",
        "tests/scheduler",
        "tests/streaming",
    ),
}
SUMMARY_WITHIN_S = 4


@dataclass(frozen=True)
class Lane:
    """One run of pytest, and the environment with its servers."""

    arguments: Sequence[str]
    environ: Mapping[str, str]


def arguments_of_all() -> list[list[str]]:
    """What the lanes run: together every test, none twice."""
    others = [f"--ignore={path}" for paths in WAITING.values() for path in paths]
    lanes = {"computing": others, **WAITING}
    return [[*paths, "-o", f"cache_dir=.pytest_cache/{name}"] for name, paths in lanes.items()]


def run(lanes: Sequence[Lane], folder: Path) -> int:
    """Run them at once; the first one's output is seen as it comes, the others' behind it. Returns the worst status."""
    with ExitStack() as stack:
        outputs = [None, *(stack.enter_context((folder / f"lane{n}").open("w+b")) for n in range(1, len(lanes)))]
        running = [_start(lane, output) for lane, output in zip(lanes, outputs, strict=True)]
        try:
            return max(_ended(*pair) for pair in zip(running, outputs, strict=True))
        except SystemExit:
            _interrupt(running)
            raise


def _start(lane: Lane, output: IO[bytes] | None) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "pytest", *lane.arguments]
    return subprocess.Popen(command, cwd=ROOT, env=lane.environ, stdout=output, stderr=output and subprocess.STDOUT)


def _ended(running: subprocess.Popen[bytes], output: IO[bytes] | None) -> int:
    if output is not None and running.poll() is None:
        print("Another lane still runs.", flush=True)
    status = abs(running.wait())
    if output is not None:
        output.seek(0)
        print(output.read().decode(errors="replace"), flush=True)
    return status


def _interrupt(running: Sequence[subprocess.Popen[bytes]]) -> None:
    """Let each say how far it came."""
    for lane in running:
        lane.send_signal(signal.SIGINT)
    for lane in running:
        try:
            lane.wait(SUMMARY_WITHIN_S)
        except subprocess.TimeoutExpired:
            lane.kill()
