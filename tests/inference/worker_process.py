"""A worker as its own process, and what it left in the broker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast
from uuid import uuid4

import psutil
from celery import Celery
from redis import Redis

ROOT = Path(__file__).resolve().parents[2]
START_S = 60
STOP_S = 30


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 60) -> None:
    """Poll; fails saying what did not happen."""
    give_up_at = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up_at, f"did not happen within {seconds} s: {what}"
        time.sleep(0.02)


class WorkerProcess:
    """`python -m inference.worker`, its log in a file."""

    def __init__(self, folder: Path, model: str, environment: Mapping[str, str]) -> None:
        self.name = f"worker-{uuid4().hex[:8]}"
        self._ready_file = folder / f"{self.name}.ready"
        self._log = folder / f"{self.name}.log"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "inference.worker", "--model", model, "--worker-name", self.name],
                cwd=ROOT,
                env={**os.environ, "ENGINE": "scripted", "READY_FILE": str(self._ready_file), **environment},
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def log(self) -> str:
        return self._log.read_text()

    def wait_ready(self, seconds: float = START_S) -> None:
        wait_until(self._ready_or_ended, "the worker is ready", seconds)
        assert self._ready_file.exists(), self.log

    def _ready_or_ended(self) -> bool:
        return self._ready_file.exists() or self._process.poll() is not None

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        """Its exit code; it may be told to stop before it has started. Fails when it does not exit."""
        return self._process.wait(START_S + STOP_S)

    def family(self) -> list[psutil.Process]:
        return [psutil.Process(self.pid), *psutil.Process(self.pid).children(recursive=True)]

    def kill(self) -> None:
        """For the end of a test, whatever state it left."""
        self._process.kill()
        self._process.wait()

    def drop_broker_connections(self, broker: Redis) -> None:
        """Cut the process's connections to the broker, those that a test has given a name excepted."""
        ports = {f"{c.laddr.ip}:{c.laddr.port}" for c in psutil.Process(self.pid).net_connections() if c.laddr}
        for client in broker.client_list():
            if client["addr"] in ports and not client["name"]:
                broker.client_kill_filter(_id=client["id"])


class Queue:
    """One Celery queue."""

    def __init__(self, app: Celery, broker: Redis, name: str) -> None:
        self._app = app
        self._broker = broker
        self.name = name

    def named(self, name: str) -> Queue:
        """Another queue of the same broker."""
        return Queue(self._app, self._broker, name)

    def send(self, task: str, *args: object, **headers: object) -> None:
        self._app.send_task(task, args=list(args), queue=self.name, headers=headers)

    def delete(self) -> None:
        """Leave nothing that a later worker would put back."""
        for tag, message in cast(dict[bytes, bytes], self._broker.hgetall("unacked")).items():
            if self.name.encode() in message:
                self._broker.hdel("unacked", tag)
                self._broker.zrem("unacked_index", tag)
        self._broker.delete(self.name, f"_kombu.binding.{self.name}", f"_kombu.binding_permanent.{self.name}")

    @property
    def waiting(self) -> int:
        return self._broker.llen(self.name)

    @property
    def unacknowledged(self) -> int:
        """Messages that a worker has taken and not settled; the hash is shared by all queues."""
        return sum(self.name.encode() in message for message in cast(list[bytes], self._broker.hvals("unacked")))
