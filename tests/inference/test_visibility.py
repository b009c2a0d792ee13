"""A message that a live worker holds is delivered once, however long its run; a dead worker's comes back."""

from __future__ import annotations

import signal

from redis import Redis

from tests.inference.pool_worker import StartWorker, send
from tests.inference.worker_process import Queue, wait_until

VISIBILITY_S = 2
SHORT = {"POOL_TEST_VISIBILITY_S": str(VISIBILITY_S)}
TOKENS_A_S = 50


def test_a_run_far_longer_than_the_timeout_is_delivered_once(start_worker: StartWorker, queue: Queue) -> None:
    worker, rival = start_worker(**SHORT), start_worker(**SHORT)
    send(queue, jobs=3, tokens=4 * VISIBILITY_S * TOKENS_A_S)
    wait_until(lambda: worker.count("done") + rival.count("done") >= 3, "all are done", 60)
    wait_until(lambda: queue.unacknowledged == queue.waiting == 0, "all are acknowledged")

    assert worker.count("begun") + rival.count("begun") == 3


def test_what_a_dead_worker_held_comes_back(start_worker: StartWorker, queue: Queue) -> None:
    worker = start_worker(**SHORT)
    send(queue, jobs=3)
    wait_until(lambda: queue.unacknowledged == 3, "all messages are held")
    rival = start_worker(**SHORT)
    worker.signal(signal.SIGKILL)

    wait_until(lambda: rival.count("begun") == 3, "the other worker has them all", 60)


def test_what_a_worker_held_that_was_killed_in_its_drain_comes_back(start_worker: StartWorker, queue: Queue) -> None:
    worker = start_worker(DRAIN_S="3600", **SHORT)
    send(queue, jobs=3)
    wait_until(lambda: worker.count("begun") == 3, "all run")
    rival = start_worker(**SHORT)
    worker.signal(signal.SIGTERM)
    wait_until(lambda: "pool.drains" in worker.log, "the drain has begun")
    assert queue.unacknowledged == 3
    worker.signal(signal.SIGKILL)

    wait_until(lambda: rival.count("begun") == 3, "the other worker has them all", 60)


def test_a_worker_that_drains_keeps_what_it_runs(start_worker: StartWorker, queue: Queue) -> None:
    worker = start_worker(DRAIN_S=str(4 * VISIBILITY_S), **SHORT)
    send(queue, jobs=3)
    wait_until(lambda: worker.count("begun") == 3, "all run")
    rival = start_worker(**SHORT)
    worker.signal(signal.SIGTERM)

    def hands_back() -> bool:
        taken_by_rival = rival.count("begun")
        has_handed_back = "pool.hands_back" in worker.log
        assert has_handed_back or not taken_by_rival, worker.log
        return has_handed_back

    wait_until(hands_back, "the drain is over")
    wait_until(lambda: rival.count("begun") == 3, "the other worker has them all")


def test_what_was_running_when_a_connection_was_cut_is_kept_too(
    start_worker: StartWorker, queue: Queue, broker: Redis
) -> None:
    worker = start_worker(**SHORT)
    send(queue, jobs=2, tokens=4 * VISIBILITY_S * TOKENS_A_S)
    wait_until(lambda: worker.count("begun") == 2, "all run")
    worker.drop_broker_connections(broker)
    # A new connection puts back what the old one held, once; nothing comes more often than that.
    wait_until(lambda: worker.count("done") >= 2, "what ran goes on", 60)
    wait_until(lambda: queue.unacknowledged == queue.waiting == 0, "all are acknowledged", 60)

    assert worker.count("begun") <= 4
