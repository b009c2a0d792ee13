"""The whole worker on real vLLM, its EngineCore stopped by a signal that it cannot refuse."""

from __future__ import annotations

import psutil
import pytest

from tests.contract.engine_processes import is_gone, spawned_by
from tests.inference.pool_worker import StartWorker, send
from tests.inference.worker_process import Queue, wait_until

SILENCE_S = 8.0  # a step on a busy machine takes a second at most
START_PATIENCE_S = 420  # beside other tests it takes minutes


@pytest.mark.vllm
@pytest.mark.timeout(START_PATIENCE_S + 120)
def test_a_worker_whose_engine_core_is_stopped_hands_back_and_leaves_nothing(
    start_worker: StartWorker, queue: Queue
) -> None:
    worker = start_worker(wait=False, ENGINE="vllm", SLOTS="4", DRAIN_S="3600", ENGINE_SILENCE_S=str(SILENCE_S))
    worker.wait_ready(START_PATIENCE_S)
    send(queue, jobs=2, tokens=1500)
    wait_until(lambda: worker.count("begun") == 2, "both run")
    family = worker.family()
    [core] = spawned_by(psutil.Process(worker.pid))
    core.suspend()

    assert worker.wait() == 1, worker.log
    assert worker.count("engine died under") == 2
    _, alive = psutil.wait_procs(family, timeout=10)
    assert all(map(is_gone, alive))
    assert queue.waiting == 2
    assert queue.unacknowledged == 0
