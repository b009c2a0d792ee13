"""The worker's own host, with a side door: what the product has just asked of the engine is asked of AsyncLLM itself.

So the engine is one and the same, and is loaded once: its process, its arguments, its threads, its cache. What is left
out is ours alone: web, queue, claim, our engine's wrapper, detokenizer, stream. The worker's idle threads stay.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, cast

from bench.serving.side_door import LINE_BYTES, PORT, Burst, Wish
from chat.hosting import RowHost
from inference.engine import Engine, Generation, Step
from inference.host import Runner, Workplace
from inference.vllm_engine import VllmEngine

if TYPE_CHECKING:
    from vllm.v1.engine.async_llm import AsyncLLM


class SideDoorHost(RowHost):
    """The product's host, whose workplaces have a side door."""

    def runner(self, workplace: Workplace) -> AbstractAsyncContextManager[Any]:
        """See `RowHost`."""
        return self._beside(workplace)

    @asynccontextmanager
    async def _beside(self, workplace: Workplace) -> AsyncIterator[Runner]:
        witness = _Witness(cast(VllmEngine, workplace.engine))
        seen = replace(workplace, engine=cast(Engine, witness))
        server = await asyncio.start_server(witness.answer, "127.0.0.1", int(os.environ[PORT]), limit=LINE_BYTES)
        async with server, super().runner(seen) as runner:
            yield runner


class _Witness:
    """Remembers the last generation that was asked of an engine; nothing stands between a step and its reader."""

    def __init__(self, engine: VllmEngine) -> None:
        self._engine = engine
        self._last: Generation | None = None
        self._bursts = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def generate(self, generation: Generation) -> AsyncGenerator[Step, None]:
        """See `Engine`."""
        self._last = generation
        return self._engine.generate(generation)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One wish, one burst."""
        burst = await self._burst(Wish(**json.loads(await reader.readline())))
        writer.write(json.dumps(asdict(burst)).encode() + b"\n")
        await writer.drain()
        writer.close()

    async def _burst(self, wish: Wish) -> Burst:
        native = self._engine._running()
        assert self._last is not None, "nothing was asked of the engine yet"
        asked = replace(self._last, max_output_tokens=wish.max_output_tokens)
        self._bursts += 1
        began_at = time.perf_counter()
        names = [f"bare-{self._bursts}-{number}" for number in range(wish.at_once)]
        firsts = await asyncio.gather(*(_read(native, replace(asked, request_id=name)) for name in names))
        seconds = time.perf_counter() - began_at
        ttft_ms = [1000 * (first_at - began_at) for first_at, _ in firsts]
        return Burst(seconds, sum(tokens for _, tokens in firsts), ttft_ms, _described(native, asked))


async def _read(native: AsyncLLM, generation: Generation) -> tuple[float, int]:
    """When the first token came, and how many there were."""
    from vllm import SamplingParams
    from vllm.inputs import tokens_input
    from vllm.sampling_params import RequestOutputKind

    params = SamplingParams(
        temperature=generation.sampling.temperature,
        top_p=generation.sampling.top_p,
        max_tokens=generation.max_output_tokens,
        detokenize=False,
        output_kind=RequestOutputKind.DELTA,
    )
    first_at, tokens = 0.0, 0
    async for output in native.generate(tokens_input(list(generation.prompt_ids)), params, generation.request_id):
        first_at = first_at or time.perf_counter()
        tokens += len(output.outputs[0].token_ids)
    return first_at, tokens


def _described(native: AsyncLLM, asked: Generation) -> Mapping[str, Any]:
    """What another server needs to be set up alike, and where the engine computes."""
    config = native.vllm_config
    return {
        "pid": native.engine_core.resources.engine_manager.processes[0].pid,
        "max_num_seqs": config.scheduler_config.max_num_seqs,
        "max_num_batched_tokens": config.scheduler_config.max_num_batched_tokens,
        "max_model_len": config.model_config.max_model_len,
        "block_size": config.cache_config.block_size,
        "async_scheduling": config.scheduler_config.async_scheduling,
        "prompt_tokens": len(asked.prompt_ids),
        "temperature": asked.sampling.temperature,
        "top_p": asked.sampling.top_p,
    }


host = SideDoorHost()
