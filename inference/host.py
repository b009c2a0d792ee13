"""What a worker must know of rows, which the GPU side never imports: it is handed an object with this shape by name."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast
from uuid import UUID

from celery import Celery
from redis.asyncio import Redis

from inference.engine import Engine
from inference.engine_arguments import EngineArguments
from inference.metering import Meter
from inference.sharded_writer import AnyWriter
from inference.tokens import Tokenizer


class NotServed(Exception):
    """There is no such model, or it cannot be served; the text says why. It may be a passing matter of the rows."""

    def __init__(self, reason: str, *, is_passing: bool = False) -> None:
        super().__init__(reason)
        self.is_passing = is_passing


class HandedBack(Exception):
    """A run stopped half-way for no fault of its own: its message goes back to the queue for another worker."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model's version as a worker needs it: where its files are, and by weight the queues to pull from.

    `context_window` is in tokens. Of a version that was loaded before, `manifest` says what its files are.
    """

    slug: str
    source: str
    context_window: int
    queues: Mapping[str, float]
    version: int = 0
    revision: str = ""
    manifest: Any = None
    arguments: EngineArguments = field(default_factory=EngineArguments)


class Roster(Protocol):
    """A worker's place among those of its model. Called in threads; all raise `NotServed` where rows are away."""

    def enter(self) -> ServedModel:
        """The worker begins: what it is to load."""

    def check_in(self, phase: str, detail: str) -> int | None:
        """It is there, and so far; returns the version that it is to serve, None where it is wanted no more."""

    def arrived(self, revision: str, digest: str, manifest: Any) -> None:
        """It has loaded the version, which answers, and is about to serve; of these files."""

    def failed(self, reason: str) -> None:
        """It could not, for that reason."""

    def leave(self) -> None:
        """It ends for good."""


class QueueOrder(Protocol):
    """From which queue a worker takes next. Called from several threads."""

    def weigh(self, weights: Mapping[str, float]) -> None:
        """The queues that exist now, and the weights that hold from now on."""

    def ranked(self) -> list[str]:
        """All of them, the one to take from next first."""

    def start(self, name: str, cost: int) -> None:
        """A run from that queue begins, of so many tokens at most."""

    def correct(self, name: str, cost: int, charge: int) -> None:
        """It is over, and came to `charge` tokens."""

    def rest(self, names: Iterable[str]) -> None:
        """Nothing waits in these, and something in all others."""


@dataclass(frozen=True, slots=True)
class Workplace:
    """What a worker process works with; `on_room` is to be called, in any thread, when the runner's limit has risen.

    `folder` holds the files of what is served.
    """

    worker_name: str
    served: ServedModel
    folder: Path
    engine: Engine
    tokenizer: Tokenizer
    streams: Redis
    writer: AnyWriter
    on_room: Callable[[], None]
    order: QueueOrder


class Runner(Protocol):
    """What coroutine tasks get as their first argument; lives on the engine's event loop."""

    def limit(self) -> int:
        """How many runs the worker may hold now, those in hand included. Called from another thread."""

    @property
    def meter(self) -> Meter:
        """What it counts of its runs. Read on the loop."""

    def report(self) -> Mapping[str, float]:
        """How busy the engine is, for people. Called from another thread."""

    async def take_no_more(self) -> None:
        """Say that nothing is to be kept for this worker any more: it finishes what runs."""

    async def hand_back(self) -> None:
        """Stop the runs that are still being generated: each then raises `HandedBack`."""

    def cancel(self, run_id: UUID) -> None:
        """Stop a run and keep its text so far; a run that is not here is no error. Called on the loop, never blocks."""


class Host(Protocol):
    """The side that knows the rows."""

    @property
    def celery_app(self) -> Celery:
        """The app whose tasks the worker runs."""

    def served_model(self, slug: str) -> ServedModel:
        """The model's active version. Raises `NotServed`."""

    def queues(self, slug: str) -> Mapping[str, float]:
        """By weight the queues to pull from. Asked every few seconds, in threads. Raises `NotServed`."""

    def roster(self, slug: str, worker_name: str) -> Roster:
        """The worker's place among those of the model."""

    def queue_order(self) -> QueueOrder:
        """A new one, for a worker from its start to its end."""

    def runner(self, workplace: Workplace) -> AbstractAsyncContextManager[Runner]:
        """What runs tasks on the workplace, from its first task to its last."""


def load_host(name: str) -> Host:
    """The host that `package.module:attribute` names. Raises `ImportError`, `AttributeError`."""
    module, _, attribute = name.partition(":")
    return cast(Host, getattr(importlib.import_module(module), attribute))
