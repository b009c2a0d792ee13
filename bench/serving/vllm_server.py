"""vLLM's own OpenAI server, set up as our engine is, on the same core."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.serving.bench import Bench, Target
from bench.serving.beside import Command
from bench.serving.job import Surface
from inference.vllm_engine import CPU_KV_CACHE_GIB
from launcher.child import free_port
from launcher.places import ROOT

NAME = "vllm serve"
READY_WITHIN_S = 300.0
# What our engine and its worker set; see `inference.vllm_engine`.
ENVIRON = {
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_CPU_KVCACHE_SPACE": str(CPU_KV_CACHE_GIB),
    "VLLM_LOGGING_LEVEL": "WARNING",
    "OMP_NUM_THREADS": "1",
}


async def serving(bench: Bench, model: Path, engine: Mapping[str, Any]) -> Target:
    """It as a target. Raises `NotServing`."""
    port = free_port()
    environ = {**os.environ, **ENVIRON, "PYTHONPATH": str(ROOT)}
    command = Command("vllm-server", _arguments(model, port, engine), port, bench.cores.server, environ, READY_WITHIN_S)
    pid = await bench.serve(command)
    return Target(NAME, Surface.OPENAI, port, {"server": pid})


def _arguments(model: Path, port: int, engine: Mapping[str, Any]) -> Sequence[str]:
    sampling = {"temperature": engine["temperature"], "top_p": engine["top_p"]}
    return [
        *(sys.executable, "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", str(model), "--served-model-name", "default", "--host", "127.0.0.1", "--port", str(port)),
        *("--max-num-seqs", str(engine["max_num_seqs"]), "--max-model-len", str(engine["max_model_len"])),
        *("--max-num-batched-tokens", str(engine["max_num_batched_tokens"])),
        *("--dtype", "float32", "--enforce-eager", "--enable-prefix-caching"),
        *("--distributed-executor-backend", "vllm.v1.executor.uniproc_executor.UniProcExecutor"),
        *("--override-generation-config", json.dumps(sampling)),
        *("--disable-log-stats", "--disable-uvicorn-access-log"),
    ]
