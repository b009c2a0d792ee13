"""Workers of the host without rows, on the scripted engine: what they told, and the work they are given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

from redis import Redis

from tests.inference.pool_host import TOLD
from tests.inference.worker_process import Queue, WorkerProcess

SLOTS = 16
FAST = {"SCRIPT_SLOTS": str(SLOTS), "SCRIPT_TOKENS_PER_S": "50", "SCRIPT_CHARS": "4000"}
FOR_EVER = 3000  # tokens, a minute of them


class Worker(WorkerProcess):
    """A worker of the host without rows."""

    def __init__(self, folder: Path, queue: Queue, streams: Redis, environment: Mapping[str, str]) -> None:
        super().__init__(folder, queue.name, {**FAST, "WORKER_HOST": "tests.inference.pool_host:host", **environment})
        self._streams = streams

    def told(self) -> list[str]:
        return [line.decode() for line in cast(list[bytes], self._streams.lrange(f"{TOLD}:{self.name}", 0, -1))]

    def count(self, what: str) -> int:
        return sum(line.startswith(what) for line in self.told())

    def forget(self) -> None:
        """Leave nothing behind."""
        self.kill()
        self._streams.delete(f"{TOLD}:{self.name}")


StartWorker = Callable[..., Worker]


def send(queue: Queue, jobs: int, tokens: int = FOR_EVER, script: str = "Hi") -> None:
    for number in range(jobs):
        queue.send("pool-test.generate", f"job-{number}", tokens, script)
