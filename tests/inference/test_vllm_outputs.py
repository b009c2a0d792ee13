"""What vLLM's outputs mean to us, without vLLM."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from inference.engine import FinishReason, GenerationFailed, KvCache, Step
from inference.vllm_engine import _Gauge, _kv_cache, _step


def output(finish_reason: str | None, prompt: list[int] | None = None, cached: int | None = None) -> Any:
    completion = SimpleNamespace(token_ids=[1, 2, 3], finish_reason=finish_reason)
    told = {"outputs": [completion], "num_cached_tokens": cached, "prompt_token_ids": prompt}
    return cast(Any, SimpleNamespace(**told))


@pytest.mark.parametrize(
    ("finish_reason", "token_ids"), [(None, (1, 2, 3)), ("length", (1, 2, 3)), ("abort", (1, 2, 3)), ("stop", (1, 2))]
)
def test_the_id_that_stopped_a_run_is_no_token_of_it(finish_reason: str | None, token_ids: tuple[int, ...]) -> None:
    assert _step(output(finish_reason)) == Step(token_ids, FinishReason(finish_reason) if finish_reason else None)


@pytest.mark.parametrize("finish_reason", [None, "length", "stop", "abort"])
def test_the_prompt_is_counted_as_vllm_has_it(finish_reason: str | None) -> None:
    step = _step(output(finish_reason, prompt=[5] * 20, cached=16))
    assert (step.input_tokens, step.cached_tokens) == (20, 16)


def test_where_vllm_does_not_tell_the_prompt_nothing_is_counted() -> None:
    step = _step(output(None))
    assert (step.input_tokens, step.cached_tokens) == (0, 0)


def test_an_error_inside_the_engine_is_not_the_prompts_fault() -> None:
    with pytest.raises(GenerationFailed):  # a ValueError would end the run as one that is not worth a retry
        _step(output("error"))


@pytest.mark.parametrize(
    ("capacity_tokens", "blocks"), [(31 * 16, 30), (20 * 16, 20)], ids=["blocks for all layers", "for groups of layers"]
)
def test_the_cache_is_what_sequences_can_have_of_it(capacity_tokens: int, blocks: int) -> None:
    told = SimpleNamespace(num_gpu_blocks=31, block_size=16, kv_cache_size_tokens=capacity_tokens)
    assert _kv_cache(cast(Any, SimpleNamespace(cache_config=told))) == KvCache(blocks, block_tokens=16)


def test_what_steps_did_is_counted_from_the_start() -> None:
    gauge = _Gauge()
    step = SimpleNamespace(
        num_running_reqs=1,
        num_waiting_reqs=0,
        num_skipped_waiting_reqs=0,
        kv_cache_usage=0.5,
        prefix_cache_stats=SimpleNamespace(queries=10, hits=4),
    )
    for preempted in (2, None, 0, 1):  # a step without output has no statistics of its own
        counts = {"num_preempted_reqs": preempted, "num_prompt_tokens": 5, "num_generation_tokens": 3}
        iteration = None if preempted is None else SimpleNamespace(**counts)
        gauge.record(cast(Any, step), cast(Any, iteration))
    load = gauge.load
    assert (load.preemptions, load.steps) == (3, 4)
    assert (load.input_tokens, load.output_tokens) == (15, 9)
    assert (load.prefix_queries, load.prefix_hits) == (40, 16)
