"""Celery's worker as we run it: quiet, with our pool, and with signals that end it in a known time."""

from __future__ import annotations

import logging
import math
import signal
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, cast

from celery import Celery
from celery.apps.worker import Worker
from celery.exceptions import SecurityWarning
from celery.platforms import EX_OK

from inference.host import Runner
from inference.pool import CLOSE_S, HAND_BACK_S, AsyncEnginePool, worker_state

logger = logging.getLogger(__name__)

# The broker may be silent while acknowledgements are written.
BROKER_PATIENCE_S = 5.0


@dataclass(frozen=True, slots=True)
class Duty:
    """Who a worker is, what it pulls from and runs on, how long it may drain, which file says that it serves."""

    worker_name: str
    queues: Sequence[str]
    open_runner: Callable[[], AbstractAsyncContextManager[Runner]]
    drain_s: float
    ready_file: Path | None = None


class EngineWorker(Worker):
    """A Celery worker that hosts one engine.

    SIGTERM, SIGINT, SIGHUP: finish what runs within `drain_s` and hand back the rest. The same again, or SIGQUIT: hand
    back at once. Either ends by SIGALRM if it takes longer than all its parts may.
    """

    def __init__(self, app: Celery, duty: Duty) -> None:
        self._duty = duty
        with warnings.catch_warnings():
            # Root is dangerous where messages are pickles; ours are JSON.
            warnings.simplefilter("ignore", SecurityWarning)
            super().__init__(
                app=app,
                hostname=duty.worker_name,
                queues=list(duty.queues),
                pool=AsyncEnginePool.of(duty.open_runner, duty.drain_s),
                concurrency=1,  # unread: the pool's limit is the engine's
                quiet=True,
                loglevel="WARNING",
                without_mingle=True,
                without_gossip=True,
                without_heartbeat=True,
            )

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

    def _stop_warm(self, number: int, frame: FrameType | None) -> None:
        if worker_state.should_stop is not None:
            self._stop_quick(number, frame)
            return
        worker_state.should_stop = EX_OK
        signal.alarm(math.ceil(self._duty.drain_s + HAND_BACK_S + CLOSE_S + BROKER_PATIENCE_S))

    def _stop_quick(self, _number: int, _frame: FrameType | None) -> None:
        if worker_state.should_stop is None:
            worker_state.should_stop = EX_OK
        cast(AsyncEnginePool, self.pool).hurry()
        signal.alarm(math.ceil(HAND_BACK_S + CLOSE_S + BROKER_PATIENCE_S))
