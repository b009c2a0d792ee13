"""A queue, and the workers that pull from it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from redis import Redis

from tests.inference.pool_host import app
from tests.inference.pool_worker import StartWorker, Worker
from tests.inference.worker_process import Queue


@pytest.fixture
def queue(broker: Redis) -> Iterator[Queue]:
    name = f"pool-test-{uuid4().hex[:12]}"
    yield Queue(app, broker, name)
    Queue(app, broker, name).delete()


@pytest.fixture
def start_worker(queue: Queue, streams: Redis, tmp_path: Path) -> Iterator[StartWorker]:
    workers: list[Worker] = []

    def start(*, wait: bool = True, **environment: str) -> Worker:
        worker = Worker(tmp_path, queue, streams, environment)
        workers.append(worker)
        if wait:
            worker.wait_ready()
        return worker

    yield start
    for worker in workers:
        worker.forget()
