"""Celery pool for coroutine tasks: all of them on one event loop, in the thread that owns the engine."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import queue
import signal
import socket
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from celery import Task
from celery.concurrency.base import BasePool, apply_target
from celery.exceptions import Reject, WorkerShutdown
from celery.platforms import EX_FAILURE
from celery.worker import state

from inference import visibility
from inference.engine import EngineDead
from inference.host import HandedBack, QueueOrder, Runner
from inference.queues import COST, tier_queue

logger = logging.getLogger(__name__)
worker_state: Any = state  # its stub knows no value but the first

# The consumer asks for the limit when its loop turns: this often at least, though nothing happens.
TURN_S = 0.25
SIGNAL_CHECK_S = 0.2
HAND_BACK_S = 3.0
CLOSE_S = 5.0
# The broker may be silent while acknowledgements are written.
BROKER_PATIENCE_S = 5.0

# Gets what it is to call on its event loop: once, when the engine has died; whenever the limit has risen.
OpenRunner = Callable[[Callable[[EngineDead], None], Callable[[], None]], AbstractAsyncContextManager[Runner]]


@dataclass(frozen=True, slots=True)
class Result:
    """What a coroutine came to."""

    value: object = None
    error: Exception | None = None

    @property
    def charge(self) -> int:
        """Tokens that the run was charged; 0 when it is not over, or led to nothing."""
        return self.value if isinstance(self.value, int) else 0

    def unwrap(self) -> object:
        """The value, or the error raised."""
        if self.error is not None:
            raise self.error
        return self.value


class CoroutineTask(Task[Any, Any]):
    """A task whose body is a coroutine function of a `Runner` and the message's arguments.

    The pool runs the body; Celery's own tracer then calls the task for the result, so that acknowledgement, rejection
    and signals are stock. The body returns how many tokens its run was charged. Weakness: `task_prerun` comes after the
    body, and time limits are not kept.
    """

    abstract = True
    acks_late = True
    ignore_result = True
    typing = False  # senders know nothing of the runner

    def __call__(self, *_args: Any, **_kwargs: Any) -> object:
        result: Result = self.request.get("coroutine_result")
        return result.unwrap()


@dataclass(eq=False, slots=True)
class Job:
    """One delivery of a message. Not known by its task's id: a broker that reconnects delivers the same task again."""

    target: Callable[..., Any]
    args: tuple[Any, ...]
    callback: Callable[..., Any]
    result: Result | None = None

    @property
    def delivery_tag(self) -> str:
        """Under which the broker keeps the message until it is acknowledged."""
        tag: str = self.args[2]["properties"]["delivery_tag"]
        return tag

    @property
    def queue(self) -> str:
        """Its tier's, whichever of them it came from."""
        return tier_queue(self.args[2]["delivery_info"]["routing_key"])

    @property
    def cost(self) -> int:
        """The most tokens that it may come to; 0 when nobody said."""
        tokens: int = self.args[2].get(COST, 0)
        return tokens

    def finish(self, result: Result) -> None:
        """Let Celery's tracer find the result, which acknowledges or rejects the message."""
        task, task_id, request, *body = self.args
        request = {**request, "coroutine_result": result}
        apply_target(self.target, (task, task_id, request, *body), {}, self.callback)


class AsyncEnginePool(BasePool):
    """Runs coroutine tasks beside an engine, and takes no more of them than it allows.

    Three threads meet here: Celery's hub starts and finishes jobs, the event loop runs them, and signals arrive in the
    hub's thread at any point.
    """

    signal_safe = False
    body_can_be_buffer = True
    task_join_will_block = False

    open_runner: ClassVar[OpenRunner]
    drain_s: ClassVar[float]
    order: ClassVar[QueueOrder]

    @classmethod
    def of(cls, open_runner: OpenRunner, drain_s: float, order: QueueOrder) -> type[Self]:
        """This pool for one runner: Celery makes its pool itself, from a class and without arguments of ours."""
        parts = {"open_runner": staticmethod(open_runner), "drain_s": drain_s, "order": order}
        return type(cls.__name__, (cls,), parts)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._jobs: set[Job] = set()
        self._done: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._bell, self._ring = socket.socketpair()
        self._bell.setblocking(False)
        self._ring.setblocking(False)
        self._runner: Runner | None = None
        self._failure: BaseException | None = None
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._closing = asyncio.Event()
        self._thread = threading.Thread(target=self._live, name="engine-loop", daemon=True)
        self._drain_ends_at = float("inf")
        self._hub: Any = None

    # The hub's thread: start and stop.

    def on_start(self) -> None:
        """Start the engine. Raises `WorkerShutdown`, with the reason in the log, when it does not come up."""
        self._thread.start()
        while not self._ready.wait(SIGNAL_CHECK_S):
            if worker_state.should_stop is not None:
                logger.warning("pool.start_interrupted")
                raise WorkerShutdown(worker_state.should_stop)
        if self._failure is not None:
            logger.error("pool.start_failed reason=%s", _one_line(self._failure))
            raise WorkerShutdown(EX_FAILURE)

    def register_with_event_loop(self, loop: Any) -> None:
        """Be called when jobs are done; again after each reconnect, which empties the hub.

        Never through `hub.call_soon`: an acknowledgement goes through it too, and one asked for inside another waits
        for the next poll, up to a second (measured: 600 ms a slot, 3 ms so).
        """
        self._hub = loop
        loop.add_reader(self._bell.fileno(), self._finish_done)
        loop.call_repeatedly(TURN_S, self._finish_done)

    @property
    def num_processes(self) -> int:
        """How many tasks the consumer may hold: it asks on every turn (`worker_disable_prefetch`)."""
        return self._runner.limit() if self._runner is not None and self._thread.is_alive() else 0

    @property
    def info(self) -> dict[str, Any]:
        """What `celery inspect stats` shows under `pool`."""
        report = self._runner.report() if self._runner is not None else {}
        tasks = len(asyncio.all_tasks(self._loop))
        return {**super().info, "in-hand": len(self._jobs), "loop-tasks": tasks, "engine": dict(report)}

    def drain(self, drain_s: float) -> None:
        """Let what runs go on for so long from now. Callable from a signal handler or another thread."""
        self._drain_ends_at = min(self._drain_ends_at, time.monotonic() + drain_s)
        _die_within(drain_s + HAND_BACK_S + CLOSE_S + BROKER_PATIENCE_S)

    def hurry(self) -> None:
        """Hand back at once what runs, now or when the pool stops. Callable from a signal handler or another thread."""
        self._drain_ends_at = 0.0
        _die_within(HAND_BACK_S + CLOSE_S + BROKER_PATIENCE_S)

    def on_stop(self) -> None:
        """Finish what runs in the time there is, hand back the rest, stop the engine; all within a known time."""
        if math.isinf(self._drain_ends_at):
            self._drain_ends_at = time.monotonic() + self.drain_s
        logger.info("pool.drains runs=%d", len(self._jobs))
        if self._runner is not None:
            self._on_loop(self._runner.take_no_more())
        self._drain_until(lambda: self._drain_ends_at)
        if self._jobs and self._runner is not None:
            logger.warning("pool.hands_back runs=%d", len(self._jobs))
            self._on_loop(self._runner.hand_back())
            give_up_at = time.monotonic() + HAND_BACK_S
            self._drain_until(lambda: give_up_at)
        for job in list(self._jobs):
            self._finish(job, Result(error=HandedBack("the run did not stop in time")))
        self._close()

    def on_terminate(self) -> None:
        """As `on_stop`, without time for what runs."""
        self.hurry()
        self.on_stop()

    def _drain_until(self, ends_at: Callable[[], float]) -> None:
        while self._jobs and self._thread.is_alive() and time.monotonic() < ends_at():
            with contextlib.suppress(queue.Empty):
                self._finish_one(self._done.get(timeout=0.1))

    def _close(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended by itself
            self._loop.call_soon_threadsafe(self._closing.set)
        self._settle_messages()
        self._thread.join(CLOSE_S)
        logger.info("pool.closed engine_stopped=%s", not self._thread.is_alive())

    def _settle_messages(self) -> None:
        """Acknowledge and reject now: Celery leaves that to a hub that no longer turns, hence to the very end."""
        for settle in self._hub._pop_ready() if self._hub is not None else ():
            try:
                if settle:
                    settle()
            except Exception as error:
                logger.warning("pool.message_left error=%s", type(error).__name__)

    # The hub's thread: jobs.

    def on_apply(
        self,
        target: Callable[..., Any],
        args: tuple[Any, ...],
        _kwargs: dict[str, Any],
        *,
        callback: Callable[..., Any],
        accept_callback: Callable[[int, float], None],
        **_options: Any,
    ) -> None:
        """Start a task. Kombu asks for the next one's queue only after this, in this thread."""
        accept_callback(os.getpid(), time.monotonic())
        job = Job(target, args, callback)
        self.order.start(job.queue, job.cost)
        self._jobs.add(job)
        self._on_loop(self._run(job))

    def _finish_done(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._bell.recv(4096)
        with contextlib.suppress(queue.Empty):
            while True:
                self._finish_one(self._done.get_nowait())
        if not self._thread.is_alive():
            self._stop_worker(self._failure)

    def _finish_one(self, job: Job) -> None:
        if job in self._jobs and job.result is not None:
            self._finish(job, job.result)

    def _finish(self, job: Job, result: Result) -> None:
        self._jobs.discard(job)
        self.order.correct(job.queue, job.cost, result.charge)
        if isinstance(result.error, EngineDead):
            self._stop_worker(result.error)
        if isinstance(result.error, EngineDead | HandedBack):
            result = Result(error=Reject(type(result.error).__name__, requeue=True))
        try:
            job.finish(result)
        except Exception:  # the others must still be finished
            logger.exception("pool.finish_failed")

    def _stop_worker(self, cause: BaseException | None) -> None:
        """The engine is gone: hand everything back, and exit so that somebody starts us anew. In any thread."""
        if worker_state.should_stop is None:
            reason = _one_line(cause) if cause else "its thread ended"
            logger.error(
                "pool.engine_dead reason=%s cure=runs go back, the worker exits and is to be started again", reason
            )
        worker_state.should_stop = EX_FAILURE
        self.hurry()

    def _on_loop(self, coroutine: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    # The event loop's thread. It must outlive the engine: the kernel kills EngineCore when this thread ends.

    def _live(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        except BaseException as failure:
            self._failure = failure
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        async with type(self).open_runner(self._on_dead, self._ring_bell) as self._runner, self._visibility():
            self._ready.set()
            await self._closing.wait()

    def _visibility(self) -> AbstractAsyncContextManager[None]:
        conf = self.app.conf
        timeout_s = conf.broker_transport_options["visibility_timeout"]
        return visibility.renewing(conf.broker_url, timeout_s, lambda: [job.delivery_tag for job in list(self._jobs)])

    def _on_dead(self, death: EngineDead) -> None:
        # From here, not from the hub, which does not turn while the broker is away.
        self._stop_worker(death)
        self._ring_bell()

    async def _run(self, job: Job) -> None:
        task_name, _, request, *_ = job.args
        try:
            value = await self.app.tasks[task_name].run(self._runner, *request["args"], **request["kwargs"])
            job.result = Result(value)
        except Exception as error:
            job.result = Result(error=error)
        self._done.put(job)
        self._ring_bell()

    def _ring_bell(self) -> None:
        with contextlib.suppress(BlockingIOError):  # full of rings that nobody has answered yet
            self._ring.send(b"!")


def _die_within(seconds: float) -> None:
    """End by SIGALRM when all else fails; an earlier end stays."""
    seconds_left = signal.alarm(math.ceil(seconds))
    if 0 < seconds_left < seconds:
        signal.alarm(seconds_left)


def _one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:500]
