"""The pool inside a real Celery worker process, on the scripted engine."""

from __future__ import annotations

import select
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import cast

import psutil
import pytest
from kombu.asynchronous import Hub
from redis import Redis

from inference.host import Runner
from inference.pool import AsyncEnginePool
from scheduler.fairness import FairOrder
from tests.inference.pool_host import app
from tests.inference.pool_worker import SLOTS, StartWorker, send
from tests.inference.worker_process import Queue, wait_until


def test_more_tasks_than_slots_fill_the_slots_and_all_end(start_worker: StartWorker, queue: Queue) -> None:
    worker = start_worker()
    send(queue, jobs=24, tokens=25)
    wait_until(lambda: worker.count("done") == 24, "24 tasks are done")
    worker.signal(signal.SIGTERM)

    assert worker.wait() == 0, worker.log
    assert f"closed, peak {SLOTS}" in worker.told()
    assert queue.waiting == queue.unacknowledged == 0


def test_no_more_is_taken_than_runs(start_worker: StartWorker, queue: Queue) -> None:
    worker = start_worker()
    send(queue, jobs=40)
    wait_until(lambda: worker.count("begun") == SLOTS, "all slots are taken")

    wait_until(lambda: queue.unacknowledged == SLOTS, "each begun task is held")
    assert queue.waiting == 40 - SLOTS


def test_sigterm_finishes_what_runs_and_leaves_the_rest_in_the_queue(start_worker: StartWorker, queue: Queue) -> None:
    worker = start_worker(DRAIN_S="30")
    send(queue, jobs=20, tokens=150)  # long enough for a slow look to find all slots taken
    wait_until(lambda: worker.count("begun") == SLOTS, "all slots are taken")
    worker.signal(signal.SIGTERM)

    assert worker.wait() == 0, worker.log
    assert worker.count("done") == SLOTS
    assert queue.waiting == 4
    assert queue.unacknowledged == 0


def test_what_outlasts_the_drain_is_handed_back(start_worker: StartWorker, queue: Queue) -> None:
    worker = start_worker(DRAIN_S="0.2")
    send(queue, jobs=5)
    wait_until(lambda: worker.count("begun") == 5, "all tasks run")
    worker.signal(signal.SIGTERM)

    assert worker.wait() == 0, worker.log
    assert worker.count("handed back") == 5
    assert queue.waiting == 5
    assert queue.unacknowledged == 0


@pytest.mark.parametrize(
    "signals", [(signal.SIGTERM, signal.SIGTERM), (signal.SIGQUIT,), (signal.SIGINT, signal.SIGINT)]
)
def test_whoever_is_in_a_hurry_does_not_wait_for_the_drain(
    start_worker: StartWorker, queue: Queue, signals: tuple[signal.Signals, ...]
) -> None:
    worker = start_worker(DRAIN_S="3600")
    send(queue, jobs=5)
    wait_until(lambda: worker.count("begun") == 5, "all tasks run")
    for number in signals:
        worker.signal(number)
        wait_until(lambda: "pool.drains" in worker.log, "the pool drains")

    assert worker.wait() == 0, worker.log
    assert queue.waiting == 5
    assert queue.unacknowledged == 0


def test_an_idle_worker_takes_a_task_that_comes_late_in_its_life(start_worker: StartWorker, queue: Queue) -> None:
    worker = start_worker()
    for number in range(3):
        send(queue, jobs=1, tokens=2)
        # Not until the broker looks empty: on its way from the queue to the held ones a message is in neither.
        wait_until(lambda: worker.count("done") == number + 1, "the task is done")  # noqa: B023 - called at once

    wait_until(lambda: queue.unacknowledged == 0, "all are acknowledged")


def test_an_engine_that_does_not_start_ends_the_worker_with_the_reason_in_one_line(start_worker: StartWorker) -> None:
    worker = start_worker(wait=False, SCRIPT_SLOTS="several")

    assert worker.wait() == 1
    [line] = [line for line in worker.log.splitlines() if "pool.start_failed" in line]
    assert "several" in line
    assert "Traceback" not in worker.log


@pytest.mark.parametrize("variable", ["DRAIN_S", "ENGINE", "ENGINE_SILENCE_S", "SLOTS"])
def test_a_setting_that_cannot_be_read_is_named(start_worker: StartWorker, variable: str) -> None:
    worker = start_worker(wait=False, **{variable: "blue"})

    assert worker.wait() == 64
    [line] = worker.log.splitlines()
    assert "blue" in line


def test_sigterm_ends_a_worker_that_is_still_loading(start_worker: StartWorker) -> None:
    worker = start_worker(wait=False, POOL_TEST_OPENING_S="3600")
    wait_until(lambda: worker.count("opening") == 1, "the model is being loaded", 60)
    worker.signal(signal.SIGTERM)

    assert worker.wait() == 0


def test_a_dead_engine_hands_everything_back_and_ends_the_worker(start_worker: StartWorker, queue: Queue) -> None:
    worker = start_worker(DRAIN_S="3600")
    send(queue, jobs=3)
    wait_until(lambda: worker.count("begun") == 3, "all tasks run")
    send(queue, jobs=1, script='[[script {"failure": "engine_dead", "fail_after_tokens": 3}]]')

    assert worker.wait() == 1, worker.log
    assert queue.waiting == 4
    assert queue.unacknowledged == 0


def test_an_engine_that_dies_while_nothing_runs_ends_the_worker(start_worker: StartWorker, queue: Queue) -> None:
    worker = start_worker()
    queue.send("pool-test.stop_engine")

    assert worker.wait() == 1, worker.log
    [line] = [line for line in worker.log.splitlines() if "watchdog.engine_dead" in line]
    assert "cause=the scripted engine is not running cure=" in line
    assert queue.waiting == queue.unacknowledged == 0


def test_a_silent_engine_hands_everything_back_and_ends_the_worker(start_worker: StartWorker, queue: Queue) -> None:
    worker = start_worker(DRAIN_S="3600", ENGINE_SILENCE_S="2")
    send(queue, jobs=3)
    wait_until(lambda: worker.count("begun") == 3, "all tasks run")
    send(queue, jobs=1, script='[[script {"failure": "engine_silent", "fail_after_tokens": 3}]]')

    assert worker.wait() == 1, worker.log
    assert worker.count("engine died under") == 4
    [line] = [line for line in worker.log.splitlines() if "watchdog.engine_dead" in line]
    assert "ENGINE_SILENCE_S" in line
    assert queue.waiting == 4
    assert queue.unacknowledged == 0


def test_a_task_that_breaks_is_acknowledged_and_breaks_no_other(start_worker: StartWorker, queue: Queue) -> None:
    worker = start_worker()
    send(queue, jobs=1, script='[[script {"failure": "generation_failed"}]]')
    send(queue, jobs=1, tokens=3)
    wait_until(lambda: worker.count("done") == 1, "the good task is done")

    wait_until(lambda: queue.unacknowledged == 0, "both are acknowledged")
    assert queue.waiting == 0


def test_a_broker_that_reconnects_confuses_no_task(start_worker: StartWorker, queue: Queue, broker: Redis) -> None:
    worker = start_worker(DRAIN_S="30")  # a delivery may be between its list and its worker when all looks settled
    send(queue, jobs=4, tokens=100)
    wait_until(lambda: worker.count("begun") == 4, "all tasks run")
    worker.drop_broker_connections(broker)
    wait_until(lambda: worker.count("done") >= 4, "what ran goes on")
    send(queue, jobs=1, tokens=2)
    wait_until(lambda: queue.waiting == queue.unacknowledged == 0, "all deliveries are acknowledged")
    worker.signal(signal.SIGTERM)

    assert worker.wait() == 0, worker.log
    begun, done = (Counter(line.split()[1] for line in worker.told() if line.startswith(w)) for w in ("begun", "done"))
    assert begun == done


def test_a_killed_worker_leaves_no_process_and_loses_no_message(start_worker: StartWorker, queue: Queue) -> None:
    worker = start_worker()
    send(queue, jobs=5)
    wait_until(lambda: worker.count("begun") == 5, "all tasks run")
    wait_until(lambda: queue.unacknowledged == 5, "all messages are held")
    family = worker.family()
    worker.signal(signal.SIGKILL)

    _, alive = psutil.wait_procs(family, timeout=10)
    assert alive == []
    assert queue.unacknowledged == 5


@contextmanager
def pool_in_this_process(told: list[Callable[[], None]]) -> Iterator[AsyncEnginePool]:
    """One whose runner does nothing; notes what that is to call when its limit has risen."""

    @asynccontextmanager
    async def open_runner(_on_dead: object, on_room: Callable[[], None]) -> AsyncIterator[Runner]:
        told.append(on_room)
        yield cast(Runner, None)

    pool = AsyncEnginePool.of(open_runner, drain_s=1, order=FairOrder())(1, app=app)
    pool.on_start()
    try:
        yield pool
    finally:
        pool.on_stop()
        for left_to_the_process in (pool._loop, pool._bell, pool._ring):
            left_to_the_process.close()


def test_the_consumer_looks_again_as_soon_as_it_may_hold_more() -> None:
    """Not at its next turn by the clock: sixteen slots that are filled one by one took 3.6 s so, and take 0.5 s."""
    told: list[Callable[[], None]] = []
    hub = Hub()
    with pool_in_this_process(told) as pool:
        pool.register_with_event_loop(hub)
        assert select.select(hub.readers, [], [], 0)[0] == []

        [on_room] = told
        on_room()

        assert len(select.select(hub.readers, [], [], 0)[0]) == 1
    hub.close()
