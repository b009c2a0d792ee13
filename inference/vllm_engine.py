"""vLLM's AsyncLLM behind our interface; the only file that imports vLLM, and only when the engine starts."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import asdict, dataclass, field, replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inference.capacity import ModelShape
from inference.engine import (
    EngineDead,
    EngineError,
    FinishReason,
    Generation,
    GenerationFailed,
    KvCache,
    Load,
    PromptRejected,
    Step,
)
from inference.engine_arguments import EngineArguments
from inference.preload import readable_openmp

if TYPE_CHECKING:
    from vllm import AsyncEngineArgs, RequestOutput, SamplingParams
    from vllm.config import VllmConfig as NativeConfig
    from vllm.v1.engine.async_llm import AsyncLLM
    from vllm.v1.metrics.loggers import StatLoggerBase
    from vllm.v1.metrics.stats import IterationStats, SchedulerStats

ABORT_RETRY_S = 0.02
CPU_KV_CACHE_GIB = 2
STOP_GRACE_S = 3.0  # nothing runs any more; what is left then is killed, and its workers die with it
IDLE = Load(running=0, waiting=0, peak_running=0, kv_cache_usage=0.0)

Steps = asyncio.Queue[Step | EngineError]  # bounded by the output cap


@dataclass(frozen=True, slots=True)
class Nodes:
    """The machines that one engine is spread over: what carries it, `ray` or `mp`, or vLLM's choice where it is empty.

    With `mp` the worker is on the first of `count`, which the others find at `master_address`. Not tried by us.
    """

    executor: str = ""
    count: int = 1
    master_address: str = ""


@dataclass(frozen=True, slots=True)
class VllmConfig:
    """What an operator may choose; what is None is left to vLLM.

    `kv_cache_blocks` are allocated whatever memory is free, and vLLM keeps one of them for itself. A step computes
    `max_num_batched_tokens` at most, prompts and answers together.
    `drain_s` is how long the worker lets runs finish after SIGTERM: vLLM must not give up on them earlier.
    """

    model_path: str | Path
    slots: int = 16
    max_model_len: int | None = None
    drain_s: float = 30.0
    gpu_memory_utilization: float | None = None
    kv_cache_blocks: int | None = None
    max_num_batched_tokens: int | None = None
    nodes: Nodes = Nodes()
    arguments: EngineArguments = field(default_factory=EngineArguments)
    log_level: str = "WARNING"


@dataclass(frozen=True, slots=True)
class _Request:
    """One request that vLLM has: the task that reads its outputs, and where that puts them."""

    pump: asyncio.Task[None]
    steps: Steps


class VllmEngine:
    """One AsyncLLM with its EngineCore process, made and used on one event loop, of the main thread or of another.

    `generate` yields token ids, never text: vLLM's own text is wrong where a continuation begins inside a character.
    The id that ended the sequence is taken off (see `Step`).
    """

    def __init__(self, config: VllmConfig) -> None:
        self._config = config
        self._engine: AsyncLLM | None = None
        self._requests: dict[str, _Request] = {}
        self._releases: set[asyncio.Task[None]] = set()
        self._gauge = _Gauge()
        self._is_dead = False

    @property
    def slots(self) -> int:
        """The most sequences vLLM runs in one batch (`max_num_seqs`)."""
        return self._config.slots

    @property
    def context_window(self) -> int:
        """`max_model_len`, as configured or as the model's own files have it."""
        window: int = self._running().vllm_config.model_config.max_model_len
        return window

    @property
    def kv_cache(self) -> KvCache:
        """vLLM's paged cache, without the block that stands for none."""
        return _kv_cache(self._running().vllm_config)

    @property
    def shape(self) -> ModelShape:
        """What the model takes of memory, as it was loaded."""
        return _shape(self._running().vllm_config)

    async def start(self) -> None:
        """Load the model, which blocks the event loop for as long as vLLM needs. Raises `EngineDead` with the reason.

        It must block: EngineCore dies with the thread that spawned it, so that thread has to be the loop's own.
        """
        _set_environment(self._config)
        try:
            with readable_openmp():
                self._engine = self._build()
            # vLLM asks once and keeps the answer; asked now, adding a request never waits for EngineCore.
            await self._engine.get_supported_tasks()
        except Exception as error:
            await self.stop()
            raise EngineDead(f"vLLM did not start: {_said(error)}") from error

    def _build(self) -> AsyncLLM:
        from vllm.v1.engine.async_llm import AsyncLLM

        arguments = _engine_args(self._config)
        native = arguments.create_engine_config()
        _check_wished_cache(native)
        loggers = [self._gauge.logger()]
        return AsyncLLM.from_vllm_config(native, stat_loggers=loggers, disable_log_stats=arguments.disable_log_stats)

    async def generate(self, generation: Generation) -> AsyncGenerator[Step, None]:
        """Yield steps until one has a finish reason; see `Engine.generate`."""
        engine = self._running()
        if self._is_live(generation.request_id):
            raise ValueError(f"request id {generation.request_id} is in use")
        steps: Steps = asyncio.Queue()
        # A task of its own: cancelled while it adds a request, vLLM's generate() would leave the request running.
        pump = asyncio.create_task(_pump(engine, generation, steps))
        self._requests[generation.request_id] = _Request(pump, steps)
        pump.add_done_callback(lambda _: self._forget(generation.request_id, pump))
        try:
            finished = False
            while not finished:
                step = await steps.get()
                if isinstance(step, EngineError):
                    raise step
                finished = step.finish_reason is not None
                yield step
        finally:
            await self._release(generation.request_id)

    async def abort(self, request_id: str) -> None:
        """End a request; returns once vLLM has let go of it."""
        await self._release(request_id)

    def _is_live(self, request_id: str) -> bool:
        request = self._requests.get(request_id)
        return request is not None and not request.pump.done()

    def _forget(self, request_id: str, pump: asyncio.Task[None]) -> None:
        request = self._requests.get(request_id)
        if request is not None and request.pump is pump:  # else the id serves another request already
            del self._requests[request_id]

    async def _release(self, request_id: str) -> None:
        if self._is_dead or not self._is_live(request_id):
            return
        release = asyncio.create_task(self._abort_until_done(request_id, self._requests[request_id].pump))
        self._releases.add(release)
        release.add_done_callback(self._releases.discard)
        await asyncio.shield(release)  # a second cancel of the reader must not stop the release

    async def _abort_until_done(self, request_id: str, pump: asyncio.Task[None]) -> None:
        """Repeat the abort: one that comes before vLLM has registered the request finds nothing to abort."""
        engine = self._running()
        while not (pump.done() or self._is_dead):
            await engine.abort(request_id)
            await asyncio.wait({pump}, timeout=ABORT_RETRY_S)

    def check_health(self) -> None:
        """Raise `EngineDead` when EngineCore is gone."""
        if self._running().errored:
            raise EngineDead("EngineCore is gone")

    def load(self) -> Load:
        """What the scheduler said after its latest step."""
        return replace(self._gauge.load, requests=len(self._requests))

    def kill(self) -> None:
        """Kill EngineCore, stopped or not; its workers die with it, and every request raises `EngineDead`."""
        self._is_dead = True
        if self._engine is not None:
            for process in self._engine.engine_core.resources.engine_manager.processes:
                process.kill()
        # Now, not when vLLM notices: an abort meanwhile would end a request as if nothing were wrong.
        for request in self._requests.values():
            request.steps.put_nowait(EngineDead("EngineCore was killed"))

    async def stop(self) -> None:
        """Abort what runs, end EngineCore and its workers; blocks the loop while they exit. Safe to repeat."""
        if self._engine is None:
            return
        await asyncio.gather(*(self._release(request_id) for request_id in list(self._requests)))
        self._engine.shutdown(timeout=STOP_GRACE_S)
        self._engine = None

    def _running(self) -> AsyncLLM:
        if self._engine is None or self._is_dead:
            raise EngineDead("the engine is not running")
        return self._engine


async def _pump(engine: AsyncLLM, generation: Generation, steps: Steps) -> None:
    """Move vLLM's outputs of one request into `steps`, failures as our errors. Never raises them."""
    try:
        async with aclosing(_outputs(engine, generation)) as outputs:
            async for output in outputs:
                steps.put_nowait(_step(output))
    except Exception as error:
        steps.put_nowait(_translated(error))


def _outputs(engine: AsyncLLM, generation: Generation) -> AsyncGenerator[RequestOutput, None]:
    from vllm.inputs import tokens_input

    if min(generation.prompt_ids, default=0) < 0:  # vLLM looks at the largest id only
        raise PromptRejected("a token id is negative")
    # As TokensInput: a plain dict takes a detour through a thread, in which an abort is lost.
    prompt = tokens_input(list(generation.prompt_ids))
    outputs: AsyncGenerator[RequestOutput, None] = engine.generate(
        prompt, _sampling_params(generation), generation.request_id
    )
    return outputs


def _sampling_params(generation: Generation) -> SamplingParams:
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        **asdict(generation.sampling),
        max_tokens=generation.max_output_tokens,
        detokenize=False,
        output_kind=RequestOutputKind.DELTA,
    )


def _step(output: RequestOutput) -> Step:
    completion = output.outputs[0]
    reason = _finish_reason(completion.finish_reason)
    # We set no stop strings, so a stop is always due to the last id.
    ids = completion.token_ids[:-1] if reason is FinishReason.STOP else completion.token_ids
    return Step(tuple(ids), reason, output.num_cached_tokens or 0, len(output.prompt_token_ids or ()))


def _finish_reason(said: str | None) -> FinishReason | None:
    """Raises `GenerationFailed` for an end that was the engine's fault (`error`), or that nobody asked for."""
    try:
        return FinishReason(said) if said else None
    except ValueError as error:
        raise GenerationFailed(f"vLLM ended it with {said!r}") from error


def _translated(error: Exception) -> EngineError:
    from vllm.exceptions import VLLMClientError
    from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

    if isinstance(error, EngineError):
        return error
    # generate() wraps what it did not expect; a ValueError is how vLLM's own checks of a request end.
    cause = error.__cause__ if isinstance(error, EngineGenerateError) else error
    match cause:
        case EngineDeadError():
            return EngineDead(str(cause))
        case VLLMClientError() | ValueError():
            return PromptRejected(str(cause))
        case _:
            return GenerationFailed(repr(cause or error))


class _Gauge:
    """The latest load that vLLM's scheduler reported."""

    def __init__(self) -> None:
        self.load = IDLE

    def record(self, stats: SchedulerStats, iteration: IterationStats | None) -> None:
        """Take over what a step of the scheduler left behind.

        vLLM tells of a preemption with the sequence's next output: one that is aborted before is never told of.
        """
        before, prefixes = self.load, stats.prefix_cache_stats
        self.load = Load(
            running=stats.num_running_reqs,
            waiting=stats.num_waiting_reqs + stats.num_skipped_waiting_reqs,
            peak_running=max(stats.num_running_reqs, before.peak_running),
            kv_cache_usage=stats.kv_cache_usage,
            steps=before.steps + 1,
            preemptions=before.preemptions + (iteration.num_preempted_reqs if iteration else 0),
            input_tokens=before.input_tokens + (iteration.num_prompt_tokens if iteration else 0),
            output_tokens=before.output_tokens + (iteration.num_generation_tokens if iteration else 0),
            prefix_queries=before.prefix_queries + prefixes.queries,
            prefix_hits=before.prefix_hits + prefixes.hits,
        )

    def logger(self) -> Any:
        """A factory of the kind vLLM wants; its base class can only be named once vLLM is imported."""
        from vllm.v1.metrics.loggers import StatLoggerBase

        gauge = self

        class GaugeLogger(StatLoggerBase):  # type: ignore[misc] # mypy does not read vLLM
            def __init__(self, vllm_config: NativeConfig, engine_index: int = 0) -> None:
                pass

            def record(self, scheduler_stats: Any, iteration_stats: Any, *_: Any, **__: Any) -> None:
                if scheduler_stats is not None:
                    gauge.record(scheduler_stats, iteration_stats)

            def log_engine_initialized(self) -> None:
                pass

        def build(vllm_config: NativeConfig, engine_index: int) -> StatLoggerBase:
            return GaugeLogger(vllm_config, engine_index)

        return build


def _said(error: Exception) -> str:
    """What it says, without what pydantic puts around that: the whole of vLLM's arguments."""
    found = error.errors() if hasattr(error, "errors") else ()
    return "; ".join(str(one["msg"]) for one in found) or str(error)


def _kv_cache(native: NativeConfig) -> KvCache:
    """The smaller of two measures: they differ where a model's layers keep several kinds of blocks for a token.

    Exact for full attention. Of layers with sliding windows vLLM tells only what a sequence of a whole window takes, of
    which a short one's share is larger.
    """
    cache = native.cache_config
    usable = cache.num_gpu_blocks - 1
    return KvCache(min(usable, cache.kv_cache_size_tokens // cache.block_size), cache.block_size)


def _shape(native: NativeConfig) -> ModelShape:
    from vllm.utils.torch_utils import STR_DTYPE_TO_TORCH_DTYPE

    model, cache = native.model_config, native.cache_config
    kept = model.dtype if cache.cache_dtype == "auto" else STR_DTYPE_TO_TORCH_DTYPE[cache.cache_dtype]
    return ModelShape(
        layers=model.get_total_num_hidden_layers(),
        kv_heads=model.get_total_num_kv_heads(),
        head_size=model.get_head_size(),
        kv_bytes=kept.itemsize,
        parameters=_parameters(Path(model.model)),
        weight_bytes=model.dtype.itemsize,
    )


def _parameters(folder: Path) -> int:
    """As many as the files have; 0 where they are of another kind than safetensors."""
    from safetensors import safe_open

    count = 0
    for file in folder.glob("*.safetensors"):
        with safe_open(file, framework="pt") as weights:
            count += sum(prod(weights.get_slice(name).get_shape()) for name in weights.keys())  # noqa: SIM118
    return count


def _check_wished_cache(native: NativeConfig) -> None:
    """Raises `EngineDead` when fewer blocks were wished for than a window takes: vLLM says so in its own log only."""
    cache = native.cache_config
    if cache.num_gpu_blocks_override is not None:
        KvCache(cache.num_gpu_blocks_override - 1, cache.block_size).check_holds(native.model_config.max_model_len)


def _set_environment(config: VllmConfig) -> None:
    """Tell vLLM, which reads the environment when it is imported, how to behave."""
    os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"  # its default, fork, is not safe in a process with threads
    os.environ["VLLM_NO_USAGE_STATS"] = "1"
    if not config.arguments.speculative_model:
        # Whatever it needs is in the folder.
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ["DO_NOT_TRACK"] = "1"
    # Left to itself, the CPU build wants 92 % of the machine's memory to be free.
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", str(CPU_KV_CACHE_GIB))
    os.environ.setdefault("VLLM_LOGGING_LEVEL", config.log_level)
    # How long EngineCore waits for workers that were told to end, where it has any, before it makes them.
    os.environ.setdefault("VLLM_WORKER_SHUTDOWN_TIMEOUT_SECONDS", "1")


def _engine_args(config: VllmConfig) -> AsyncEngineArgs:
    from vllm import AsyncEngineArgs
    from vllm.platforms import current_platform
    from vllm.v1.executor.uniproc_executor import UniProcExecutor

    on_cpu, arguments = current_platform.is_cpu(), config.arguments
    chosen: dict[str, Any] = {"max_model_len": config.max_model_len}
    if config.nodes.executor:
        chosen["distributed_executor_backend"] = config.nodes.executor
    elif on_cpu and arguments.tensor_parallel_size * arguments.pipeline_parallel_size == 1:
        # As on one GPU: by default the CPU build computes in one more process, whose threads it can bind to cores. Ours
        # have theirs from the environment; without it a start takes a quarter less, and a token half the CPU.
        chosen["distributed_executor_backend"] = UniProcExecutor
    if config.nodes.count > 1:
        chosen |= {"nnodes": config.nodes.count, "node_rank": 0, "master_addr": config.nodes.master_address}
    if config.gpu_memory_utilization is not None:
        chosen["gpu_memory_utilization"] = config.gpu_memory_utilization
    if config.kv_cache_blocks is not None:
        chosen["num_gpu_blocks_override"] = config.kv_cache_blocks
    if config.max_num_batched_tokens is not None:
        chosen["max_num_batched_tokens"] = config.max_num_batched_tokens
    return AsyncEngineArgs(
        model=str(config.model_path),
        max_num_seqs=config.slots,
        # bfloat16 is emulated on AVX2, several times slower; compiling for the CPU costs minutes.
        dtype=arguments.dtype or ("float32" if on_cpu else "auto"),
        enforce_eager=on_cpu,
        enable_prefix_caching=arguments.enable_prefix_caching,
        quantization=arguments.quantization or None,
        kv_cache_dtype=arguments.kv_cache_dtype or "auto",
        tensor_parallel_size=arguments.tensor_parallel_size,
        pipeline_parallel_size=arguments.pipeline_parallel_size,
        speculative_config=arguments.speculation,
        shutdown_timeout=round(config.drain_s) + 5,
        enable_log_requests=False,
        disable_log_stats=True,  # the gauge alone is fed
        use_tqdm_on_load=False,
        **chosen,
    )
