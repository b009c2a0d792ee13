"""Servers beside the product: the bare parts, engines behind other servers, and those servers themselves."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.serving.cores import staying_on
from launcher import kernel

STOP_WITHIN_S = 10.0
LOOK_EVERY_S = 0.05


class NotServing(Exception):
    """It ended, or nobody came to listen; the text has its log's end."""


@dataclass(frozen=True)
class Command:
    """What is run, where, and until when it must listen on its port."""

    name: str
    arguments: Sequence[str]
    port: int
    core: int
    environ: Mapping[str, str]
    ready_within_s: float = 60.0


@asynccontextmanager
async def serving(command: Command, folder: Path) -> AsyncIterator[int]:
    """Run it until the block ends, from when it listens on; yields its process id. Raises `NotServing`."""
    log = folder / f"{command.name}.log"
    process = _started(command, log)
    try:
        await _listening(command, process, log)
        yield process.pid
    finally:
        await asyncio.to_thread(_stop, process)


def _started(command: Command, log: Path) -> subprocess.Popen[bytes]:
    move = staying_on(command.core)

    def prepare() -> None:
        kernel.signal_at_parent_death(signal.SIGTERM)
        move()

    with log.open("ab") as output:
        return subprocess.Popen(
            command.arguments,
            env=command.environ,
            cwd=log.parent,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            process_group=0,  # not a session: the kernel may share cores out among these
            preexec_fn=prepare,  # noqa: PLW1509  (it only calls the kernel)
        )


async def _listening(command: Command, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + command.ready_within_s
    while process.poll() is None and time.monotonic() < until:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", command.port)
        except OSError:
            await asyncio.sleep(LOOK_EVERY_S)
        else:
            writer.close()
            return
    raise NotServing(f"{command.name} does not listen on its port: {_tail(log)}")


def _tail(log: Path) -> str:
    return " / ".join(log.read_text(errors="replace").splitlines()[-5:])


def _stop(process: subprocess.Popen[bytes]) -> None:
    """It and those that it has started, which are a group of their own."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(STOP_WITHIN_S)
        except ProcessLookupError:
            process.wait()
        except subprocess.TimeoutExpired:
            continue
        else:
            continue
