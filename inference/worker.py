"""The GPU worker: `python -m inference.worker --model SLUG --worker-name NAME`.

One process, one engine, one Celery consumer of the model's queues. Multiprocessing re-imports this module in every
process that the engine spawns, so it stays small: whatever is heavy is imported inside the functions.
"""

from __future__ import annotations

import argparse
import asyncio
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
    from inference.attendance import Attendance
    from inference.engine import Engine, EngineDead
    from inference.host import Host, Roster, Runner, ServedModel
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
    executor: str = ""
    nodes: int = 1
    master_address: str = ""
    drain_s: float = 5.0
    change_over_drain_s: float = 600.0
    model_cache: Path = Path("model-cache")
    engine_silence_s: float = 60.0
    ready_file: Path | None = None
    host: str = "chat.hosting:host"

    @classmethod
    def from_environ(cls, model: str, worker_name: str, environ: Mapping[str, str]) -> Self:
        """Raises `BadSetting`."""
        from inference.servers import checked

        try:
            state = Path(environ.get("PALAVER_STATE") or ".palaver")
            environ = {"MODEL_CACHE": str(state / "model-cache"), **environ}
            chosen = {name: _read(*setting, environ) for name, setting in _SETTINGS.items() if environ.get(setting[0])}
            streams_url = environ["STREAMS_URL"] and _read(
                "STREAMS_URL", partial(checked, may_be_cluster=True), environ
            )
            return cls(model=model, worker_name=worker_name, streams_url=streams_url, **chosen)
        except KeyError as missing:
            raise BadSetting(f"{missing} is not set") from missing
        except ValueError as error:
            raise BadSetting(str(error)) from error


def _read(key: str, read: Callable[[str], Any], environ: Mapping[str, str]) -> Any:
    try:
        return read(environ[key])
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from None


_SETTINGS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "engine": ("ENGINE", EngineKind),
    "slots": ("SLOTS", int),
    "gpu_memory_utilization": ("GPU_MEMORY_UTILIZATION", float),
    "kv_cache_blocks": ("KV_CACHE_BLOCKS", int),
    "max_num_batched_tokens": ("MAX_NUM_BATCHED_TOKENS", int),
    "executor": ("DISTRIBUTED_EXECUTOR_BACKEND", str),
    "nodes": ("NNODES", int),
    "master_address": ("MASTER_ADDR", str),
    "drain_s": ("DRAIN_S", float),
    "change_over_drain_s": ("CHANGE_OVER_DRAIN_S", float),
    "model_cache": ("MODEL_CACHE", Path),
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
        roster = host.roster(config.model, config.worker_name)
        served = roster.enter()
    except (BadSetting, NotServed) as refused:
        logger.critical("worker.refused worker=%s reason=%s", options.worker_name, refused)
        return EX_USAGE
    return serve(config, host, roster, served)


@dataclass(frozen=True, slots=True)
class Service:
    """What a worker serves: as whom, for which host, which version of a model, from which queues."""

    config: WorkerConfig
    host: Host
    served: ServedModel
    queues: QueueNames
    attendance: Attendance


def serve(config: WorkerConfig, host: Host, roster: Roster, served: ServedModel) -> int:
    """Consume the model's queues until a signal, or until another version is wanted; returns the exit code."""
    from inference.attendance import Attendance
    from inference.consumer import CHANGES_OVER, Duty, EngineWorker
    from inference.queues import QueueNames

    parent_death.remember_spawner()
    queues = QueueNames(config.worker_name, served.queues, lambda: host.queues(served.slug), host.queue_order())
    attendance = Attendance(roster, served.version)
    duty = Duty(
        worker_name=config.worker_name,
        queues=queues,
        open_runner=partial(open_runner, Service(config, host, served, queues, attendance)),
        drain_s=config.drain_s,
        change_over_drain_s=config.change_over_drain_s,
        on_drain=attendance.drains,
        ready_file=config.ready_file,
    )
    worker = EngineWorker(host.celery_app, duty)
    logger.info(
        "worker.starts worker=%s model=%s version=%d engine=%s",
        *(config.worker_name, served.slug, served.version, config.engine),
    )
    with attendance.kept(worker.change_over):
        worker.start()
        code = worker.exitcode or 0
        if code == 0:
            attendance.leave()
        elif attendance.is_wanted_elsewhere:
            code = CHANGES_OVER
    logger.info("worker.exits worker=%s code=%d", config.worker_name, code)
    return code


@asynccontextmanager
async def open_runner(
    service: Service, on_dead: Callable[[EngineDead], None], on_room: Callable[[], None]
) -> AsyncIterator[Runner]:
    """What the pool's tasks run on, from the loaded model down to the host's own part; closed in reverse order."""
    async with AsyncExitStack() as stack:
        try:
            runner = await _opened(stack, service, on_dead, on_room)
        except Exception as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            await asyncio.to_thread(service.attendance.failed, reason)
            raise
        # What vLLM and torch have imported stays: looking through it for garbage held up every stream for 0.4 s.
        gc.collect()
        gc.freeze()
        # The engine's loop is one thread of several: it waits so long at most for the interpreter, not Python's 5 ms.
        sys.setswitchinterval(SWITCH_S)
        yield runner


async def _opened(
    stack: AsyncExitStack, service: Service, on_dead: Callable[[EngineDead], None], on_room: Callable[[], None]
) -> Runner:
    from inference import servers
    from inference.control import ControlLine
    from inference.host import Workplace
    from inference.loading import fetched, loaded
    from inference.reporting import Reporter, Reporting
    from inference.sharded_writer import writer_to
    from inference.watchdog import Watchdog

    config, served, attendance = service.config, service.served, service.attendance
    # The writer sends again by itself, and knows what to do about a lost reply.
    redis = servers.asynchronous(
        config.streams_url, socket_timeout=SOCKET_TIMEOUT_S, socket_connect_timeout=SOCKET_TIMEOUT_S
    )
    stack.push_async_callback(redis.aclose)
    files = await asyncio.to_thread(fetched, served, config.model_cache, attendance)
    engine, tokenizer = await stack.enter_async_context(
        loaded(partial(build_engine, config, served, files.folder), files, attendance)
    )
    await stack.enter_async_context(Watchdog(engine, config.engine_silence_s, on_dead))
    writer = writer_to(redis)
    await stack.enter_async_context(writer)
    workplace = Workplace(
        config.worker_name, served, files.folder, engine, tokenizer, redis, writer, on_room, service.queues.order
    )
    runner = await stack.enter_async_context(service.host.runner(workplace))
    await stack.enter_async_context(ControlLine(redis, config.worker_name, runner.cancel))
    await stack.enter_async_context(service.queues.following())
    reporting = Reporting(config.worker_name, served.slug, runner)
    await stack.enter_async_context(Reporter(redis, reporting))
    await asyncio.to_thread(attendance.arrived, files.revision, files.manifest.digest, files.manifest.as_json())
    return runner


def vllm_config(config: WorkerConfig, served: ServedModel, folder: Path) -> VllmConfig:
    """The real engine as the version's arguments want it; what they leave open, the worker's settings say."""
    from inference.vllm_engine import Nodes, VllmConfig

    arguments = served.arguments
    return VllmConfig(
        model_path=folder,
        slots=arguments.max_num_seqs or config.slots,
        max_model_len=served.context_window,
        drain_s=config.drain_s,
        gpu_memory_utilization=arguments.gpu_memory_utilization or config.gpu_memory_utilization,
        kv_cache_blocks=config.kv_cache_blocks,
        max_num_batched_tokens=config.max_num_batched_tokens,
        nodes=Nodes(config.executor, config.nodes, config.master_address),
        arguments=arguments,
    )


def build_engine(config: WorkerConfig, served: ServedModel, folder: Path, tokenizer: Tokenizer) -> Engine:
    """The engine that the settings name, not yet started. Raises `ValueError` when its own cannot be read."""
    match config.engine:
        case EngineKind.VLLM:
            from inference.vllm_engine import VllmEngine

            return VllmEngine(vllm_config(config, served, folder))
        case EngineKind.SCRIPTED:
            from inference.scripted_engine import Script, ScriptedEngine

            script = Script.from_environment({"SCRIPT_CONTEXT_WINDOW": str(served.context_window), **os.environ})
            return ScriptedEngine(script, tokenizer)


if __name__ == "__main__":
    exit_code = main()
    logging.shutdown()
    sys.stdout.flush()
    # Everything is stopped and handed back by now, or had its time: a thread stuck in a socket must not hold us.
    os._exit(exit_code)
