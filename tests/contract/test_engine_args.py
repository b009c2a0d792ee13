"""What an operator chose reaches vLLM, and what nobody chose is vLLM's to choose."""

from __future__ import annotations

import warnings
from dataclasses import asdict

import pytest

from inference import vllm_engine
from inference.engine_arguments import EngineArguments
from inference.host import ServedModel
from inference.vllm_engine import VllmConfig
from inference.worker import WorkerConfig, vllm_config
from tests.real_model import model_folder

pytestmark = pytest.mark.vllm


@pytest.fixture(scope="module", autouse=True)
def _imported() -> None:
    """Importing vLLM meets a dozen deprecations in torch and in itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        vllm_engine._engine_args(VllmConfig(model_folder()))


def test_an_operators_choices() -> None:
    chosen = VllmConfig(model_folder(), slots=3, max_model_len=512, kv_cache_blocks=9, max_num_batched_tokens=64)

    made = vllm_engine._engine_args(chosen)

    assert (made.max_num_seqs, made.max_model_len, made.num_gpu_blocks_override) == (3, 512, 9)
    assert made.max_num_batched_tokens == 64


def test_what_is_left_to_vllm() -> None:
    made = vllm_engine._engine_args(VllmConfig(model_folder()))

    assert made.max_num_batched_tokens is None
    assert made.num_gpu_blocks_override is None


def test_a_versions_arguments_reach_vllm_by_its_own_names() -> None:
    arguments = EngineArguments(
        dtype="float16",
        quantization="fp8",
        max_num_seqs=5,
        gpu_memory_utilization=0.5,
        kv_cache_dtype="fp8",
        enable_prefix_caching=False,
        tensor_parallel_size=2,
        pipeline_parallel_size=3,
        speculative_method="ngram",
        num_speculative_tokens=4,
    )
    worker = WorkerConfig("model", "gpu1", "redis://", slots=9, gpu_memory_utilization=0.9)
    served = ServedModel("model", "/somewhere", 512, {}, arguments=arguments)

    made = vllm_engine._engine_args(vllm_config(worker, served, model_folder()))

    of_same_name = {name: getattr(made, name) for name in asdict(arguments) if hasattr(made, name)}
    assert of_same_name.items() <= asdict(arguments).items()
    assert len(of_same_name) == 8
    assert made.speculative_config == {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4}
    assert made.max_model_len == 512


def test_what_a_version_leaves_open_the_workers_settings_say() -> None:
    worker = WorkerConfig("model", "gpu1", "redis://", slots=9, gpu_memory_utilization=0.9)

    made = vllm_engine._engine_args(vllm_config(worker, ServedModel("model", "/somewhere", 512, {}), model_folder()))

    assert (made.max_num_seqs, made.gpu_memory_utilization, made.speculative_config) == (9, 0.9, None)
    assert (made.tensor_parallel_size, made.enable_prefix_caching, made.kv_cache_dtype) == (1, True, "auto")


def test_an_engine_on_several_machines() -> None:
    given = {"STREAMS_URL": "redis://", "DISTRIBUTED_EXECUTOR_BACKEND": "mp", "NNODES": "2", "MASTER_ADDR": "192.0.2.1"}
    served = ServedModel("model", "/somewhere", 512, {}, arguments=EngineArguments(pipeline_parallel_size=2))

    made = vllm_engine._engine_args(vllm_config(WorkerConfig.from_environ("m", "gpu1", given), served, model_folder()))

    assert made.distributed_executor_backend == "mp"
    assert (made.nnodes, made.node_rank, made.master_addr) == (2, 0, "192.0.2.1")
    alone = vllm_engine._engine_args(VllmConfig(model_folder()))
    assert (alone.nnodes, alone.master_addr) == (1, "127.0.0.1")


def test_a_draft_model_is_named_to_vllm() -> None:
    arguments = EngineArguments(speculative_method="draft_model", num_speculative_tokens=3, speculative_model="/small")
    assert arguments.speculation == {"method": "draft_model", "num_speculative_tokens": 3, "model": "/small"}
