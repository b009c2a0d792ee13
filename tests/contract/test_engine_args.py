"""What an operator chose reaches vLLM, and what nobody chose is vLLM's to choose."""

from __future__ import annotations

import pytest

from inference import vllm_engine
from inference.vllm_engine import VllmConfig
from tests.real_model import model_folder

pytestmark = pytest.mark.vllm


def test_an_operators_choices() -> None:
    chosen = VllmConfig(model_folder(), slots=3, max_model_len=512, kv_cache_blocks=9, max_num_batched_tokens=64)

    made = vllm_engine._engine_args(chosen)

    assert (made.max_num_seqs, made.max_model_len, made.num_gpu_blocks_override) == (3, 512, 9)
    assert made.max_num_batched_tokens == 64


def test_what_is_left_to_vllm() -> None:
    made = vllm_engine._engine_args(VllmConfig(model_folder()))

    assert made.max_num_batched_tokens is None
    assert made.num_gpu_blocks_override is None
