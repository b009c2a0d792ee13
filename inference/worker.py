"""The GPU worker: `python -m inference.worker --model SLUG --worker-name NAME`.

One process, one engine, one Celery consumer of the model's queues. Multiprocessing re-imports this module in every
process that the engine spawns, so it stays small: whatever is heavy is imported inside the functions.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from inference import parent_death

# Before anything that takes time: an engine process whose worker died meanwhile must not live on.
parent_death.arm_if_spawned(__name__)

if TYPE_CHECKING:
    from inference.engine import Engine, EngineDead
    from inference.host import Host, Runner, ServedModel
    from inference.queues import QueueNames
    from inference.tokens import Tokenizer
    from inference.vllm_engine import VllmConfig

logger = logging.getLogger("inference.worker")

EX_USAGE = 64
SOCKET_TIMEOUT_S = 5.0
SWITCH_S = 0.001


class EngineKind(StrEnum):
    """What turns prompts into tokens."""

    VLLM = "vllm"
    SCRIPTED = "scripted"


class BadSetting(ValueError):
    """A setting of the worker cannot be read; the text names it."""


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """Every setting of the worker itself; the only place where it reads the environment."""

    model: str
    worker_name: str
    streams_url: str
    engine: EngineKind = EngineKind.VLLM
    slots: int = 16
    gpu_memory_utilization: float | None = None
    kv_cache_blocks: int | None = None
    max_num_batched_tokens: int | None = None
    drain_s: float = 5.0
    engine_silence_s: float = 60.0
    ready_file: Path | None = None
    host: str = "chat.hosting:host"

    @classmethod
    def from_environ(cls, model: str, worker_name: str, environ: Mapping[str, str]) -> Self:
        """Raises `BadSetting`."""
        try:
            chosen = {name: read(environ[key]) for name, (key, read) in _SETTINGS.items() if environ.get(key)}
            return cls(model=model, worker_name=worker_name, streams_url=environ["STREAMS_URL"], **chosen)
        except KeyError as missing:
            raise BadSetting(f"{missing} is not set") from missing
        except ValueError as error:
            raise BadSetting(str(error)) from error


_SETTINGS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "engine": ("ENGINE", EngineKind),
    "slots": ("SLOTS", int),
    "gpu_memory_utilization": ("GPU_MEMORY_UTILIZATION", float),
    "kv_cache_blocks": ("KV_CACHE_BLOCKS", int),
    "max_num_batched_tokens": ("MAX_NUM_BATCHED_TOKENS", int),
    "drain_s": ("DRAIN_S", float),
    "engine_silence_s": ("ENGINE_SILENCE_S", float),
    "ready_file": ("READY_FILE", Path),
    "host": ("WORKER_HOST", str),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until told to stop. Returns 0 after a warm stop, else non-zero with the reason in the log's last line."""
    from inference.host import NotServed, load_host

    parser = argparse.ArgumentParser(prog="python -m inference.worker", description="Serve a model.")
    parser.add_argument("--model", required=True, help="slug of the model's row")
    parser.add_argument("--worker-name", required=True, help="who claims runs, in the rows and in the log")
    options = parser.parse_args(argv)
    try:
        config = WorkerConfig.from_environ(options.model, options.worker_name, os.environ)
        host = load_host(config.host)
        served = host.served_model(config.model)
    except (BadSetting, NotServed) as refused:
        logger.critical("worker.refused worker=%s reason=%s", options.worker_name, refused)
        return EX_USAGE
    return serve(config, host, served)


@dataclass(frozen=True, slots=True)
class Service:
    """What a worker serves: as whom, for which host, which model, from which queues."""

    config: WorkerConfig
    host: Host
    served: ServedModel
    queues: QueueNames


def serve(config: WorkerConfig, host: Host, served: ServedModel) -> int:
    """Consume the model's queues until a signal; returns the exit code."""
    from inference.consumer import Duty, EngineWorker
    from inference.queues import QueueNames

    parent_death.remember_spawner()
    queues = QueueNames(
        config.worker_name, served.queues, lambda: host.served_model(served.slug).queues, host.queue_order()
    )
    duty = Duty(
        worker_name=config.worker_name,
        queues=queues,
        open_runner=partial(open_runner, Service(config, host, served, queues)),
        drain_s=config.drain_s,
        ready_file=config.ready_file,
    )
    worker = EngineWorker(host.celery_app, duty)
    logger.info("worker.starts worker=%s model=%s engine=%s", config.worker_name, served.slug, config.engine)
    worker.start()
    code = worker.exitcode or 0
    logger.info("worker.exits worker=%s code=%d", config.worker_name, code)
    return code


@asynccontextmanager
async def open_runner(
    service: Service, on_dead: Callable[[EngineDead], None], on_room: Callable[[], None]
) -> AsyncIterator[Runner]:
    """What the pool's tasks run on, from the loaded model down to the host's own part; closed in reverse order."""
    from redis.asyncio import Redis
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff

    from inference.control import ControlLine
    from inference.host import Workplace
    from inference.reporting import Reporter, Reporting
    from inference.stream_writer import StreamWriter
    from inference.tokens import Tokenizer
    from inference.watchdog import Watchdog

    config = service.config
    async with AsyncExitStack() as stack:
        # The writer sends again by itself, and knows what to do about a lost reply.
        redis = Redis.from_url(
            config.streams_url,
            socket_timeout=SOCKET_TIMEOUT_S,
            socket_connect_timeout=SOCKET_TIMEOUT_S,
            retry=Retry(NoBackoff(), retries=0),
        )
        stack.push_async_callback(redis.aclose)
        tokenizer = Tokenizer.load(service.served.folder)
        engine = build_engine(config, service.served, tokenizer)
        stack.push_async_callback(engine.stop)
        await engine.start()
        await stack.enter_async_context(Watchdog(engine, config.engine_silence_s, on_dead))
        writer = await stack.enter_async_context(StreamWriter(redis))
        workplace = Workplace(config.worker_name, engine, tokenizer, redis, writer, on_room, service.queues.order)
        runner = await stack.enter_async_context(service.host.runner(workplace))
        await stack.enter_async_context(ControlLine(redis, config.worker_name, runner.cancel))
        await stack.enter_async_context(service.queues.following())
        reporting = Reporting(config.worker_name, service.served.slug, runner)
        await stack.enter_async_context(Reporter(redis, reporting))
        # What vLLM and torch have imported stays: looking through it for garbage held up every stream for 0.4 s.
        gc.collect()
        gc.freeze()
        # The engine's loop is one thread of several: it waits so long at most for the interpreter, not Python's 5 ms.
        sys.setswitchinterval(SWITCH_S)
        yield runner


def vllm_config(config: WorkerConfig, folder: Path | str, context_window: int) -> VllmConfig:
    """The real engine as these settings want it."""
    from inference.vllm_engine import VllmConfig

    return VllmConfig(
        model_path=folder,
        slots=config.slots,
        max_model_len=context_window,
        drain_s=config.drain_s,
        gpu_memory_utilization=config.gpu_memory_utilization,
        kv_cache_blocks=config.kv_cache_blocks,
        max_num_batched_tokens=config.max_num_batched_tokens,
    )


def build_engine(config: WorkerConfig, served: ServedModel, tokenizer: Tokenizer) -> Engine:
    """The engine that the settings name, not yet started. Raises `ValueError` when its own cannot be read."""
    match config.engine:
        case EngineKind.VLLM:
            from inference.vllm_engine import VllmEngine

            return VllmEngine(vllm_config(config, served.folder, served.context_window))
        case EngineKind.SCRIPTED:
            from inference.scripted_engine import Script, ScriptedEngine

            return ScriptedEngine(Script.from_environment(os.environ), tokenizer)


if __name__ == "__main__":
    exit_code = main()
    logging.shutdown()
    sys.stdout.flush()
    # Everything is stopped and handed back by now, or had its time: a thread stuck in a socket must not hold us.
    os._exit(exit_code)
