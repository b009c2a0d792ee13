"""What an operator may tell the engine of a model's version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

DTYPES = ("auto", "float32", "bfloat16", "float16")
QUANTIZATIONS = ("awq", "awq_marlin", "bitsandbytes", "compressed-tensors", "fp8", "gptq", "gptq_marlin")
KV_CACHE_DTYPES = ("auto", "fp8", "fp8_e4m3", "fp8_e5m2")
# How the next tokens are guessed: `ngram` looks into the prompt, the others ask a smaller model, or heads of this one.
GUESSERS = ("draft_model", "eagle", "eagle3", "mtp", "ngram")
# As many of a prompt's last tokens `ngram` looks for in what stands before them.
NGRAM = 4


@dataclass(frozen=True, slots=True)
class EngineArguments:
    """By vLLM's own names; what is None or empty is left to the worker's settings, and behind them to vLLM."""

    dtype: str = ""
    quantization: str = ""
    max_num_seqs: int | None = None
    gpu_memory_utilization: float | None = None
    kv_cache_dtype: str = ""
    enable_prefix_caching: bool = True
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    speculative_method: str = ""
    num_speculative_tokens: int | None = None
    speculative_model: str = ""

    @property
    def speculation(self) -> Mapping[str, Any] | None:
        """vLLM's `speculative_config`; None without a method."""
        if not self.speculative_method:
            return None
        chosen: dict[str, Any] = {
            "method": self.speculative_method,
            "num_speculative_tokens": self.num_speculative_tokens or 1,
        }
        if self.speculative_method == "ngram":
            chosen["prompt_lookup_max"] = NGRAM
        if self.speculative_model:
            chosen["model"] = self.speculative_model
        return chosen
