"""Celery's worker as we run it: quiet, with our pool, and with signals that end it in a known time."""

from __future__ import annotations

import logging
import os
import signal
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, cast

from celery import Celery
from celery.apps.worker import Worker
from celery.exceptions import SecurityWarning
from celery.platforms import EX_OK

from inference.pool import AsyncEnginePool, OpenRunner, worker_state
from inference.queues import FairCycles, PullFromNewQueues, QueueNames

logger = logging.getLogger(__name__)

# The exit code of a worker that is to be started again at once, since another version of its model is wanted.
CHANGES_OVER = os.EX_TEMPFAIL


@dataclass(frozen=True, slots=True)
class Duty:
    """Who a worker is, what it pulls from and runs on, which file says that it serves.

    It may drain for `drain_s`, and before it changes over for `change_over_drain_s`.
    """

    worker_name: str
    queues: QueueNames
    open_runner: OpenRunner
    drain_s: float
    change_over_drain_s: float
    on_drain: Callable[[], None]
    ready_file: Path | None = None


class EngineWorker(Worker):
    """A Celery worker that hosts one engine.

    SIGTERM, SIGINT, SIGHUP: finish what runs within `drain_s` and hand back the rest. The same again, or SIGQUIT: hand
    back at once. Either ends by SIGALRM if it takes longer than all its parts may.
    """

    def __init__(self, app: Celery, duty: Duty) -> None:
        self._duty = duty
        self._is_told_to_stop = False
        app.steps["consumer"].add(PullFromNewQueues)
        in_order = {"queue_order_strategy": FairCycles(duty.queues.order)}
        app.conf.broker_transport_options = {**app.conf.broker_transport_options, **in_order}
        with warnings.catch_warnings():
            # Root is dangerous where messages are pickles; ours are JSON.
            warnings.simplefilter("ignore", SecurityWarning)
            super().__init__(
                app=app,
                hostname=duty.worker_name,
                queues=list(duty.queues.now),
                pool=AsyncEnginePool.of(duty.open_runner, duty.drain_s, duty.queues.order),
                concurrency=1,  # unread: the pool's limit is the engine's
                quiet=True,
                loglevel="WARNING",
                without_mingle=True,
                without_gossip=True,
                without_heartbeat=True,
            )

    @property
    def queue_names(self) -> QueueNames:
        """What its consumer is to pull from."""
        return self._duty.queues

    def setup_logging(self, _colorize: bool | None = None) -> None:
        """Leave the log as it is set, without Celery's lines about tasks that end as they should: ours name the run."""
        logging.getLogger("celery").setLevel(logging.WARNING)
        logging.getLogger("celery.app.trace").setLevel(logging.ERROR)

    def install_platform_tweaks(self, _worker: Any) -> None:
        """Our signals in place of Celery's, whose second SIGTERM does nothing."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._stop_warm)
        signal.signal(signal.SIGQUIT, self._stop_quick)

    def on_consumer_ready(self, consumer: Any) -> None:
        """The engine takes prompts and the broker is connected."""
        super().on_consumer_ready(consumer)
        if self._duty.ready_file is not None:
            self._duty.ready_file.touch()
        logger.info("worker.ready worker=%s", self._duty.worker_name)

    def change_over(self) -> None:
        """Finish what runs, then end with `CHANGES_OVER`. From another thread; nothing to a worker that ends anyway."""
        if worker_state.should_stop is None:
            worker_state.should_stop = CHANGES_OVER
            self._duty.on_drain()
            if self.pool is not None:
                self._engine_pool.drain(self._duty.change_over_drain_s)

    def _stop_warm(self, number: int, frame: FrameType | None) -> None:
        if self._is_told_to_stop or worker_state.should_stop not in {None, CHANGES_OVER}:
            self._stop_quick(number, frame)
            return
        self._is_told_to_stop = True
        self._duty.on_drain()
        worker_state.should_stop = EX_OK
        self._engine_pool.drain(self._duty.drain_s)

    def _stop_quick(self, _number: int, _frame: FrameType | None) -> None:
        if worker_state.should_stop is None:
            worker_state.should_stop = EX_OK
        self._engine_pool.hurry()

    @property
    def _engine_pool(self) -> AsyncEnginePool:
        return cast(AsyncEnginePool, self.pool)
