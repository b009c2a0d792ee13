"""An engine under test, with a question it answers briefly and one to which it has much to say."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from inference.engine import Engine, Generation, Sampling
from inference.tokens import Tokenizer, Turn
from inference.vllm_engine import VllmConfig
from tests.real_model import model_folder

CAPITAL = "What is the capital of France?"
# The real engine with a small KV cache: its context window in tokens, and its blocks.
WINDOW, BLOCKS = 1024, 10
REAL = pytest.param("vllm", marks=pytest.mark.vllm)


@dataclass(frozen=True)
class Subject:
    """An engine under test."""

    name: str
    engine: Engine
    tokenizer: Tokenizer
    brief_prompt: list[int]
    long_prompt: list[int]

    def brief(self, request_id: str, cap: int = 60) -> Generation:
        """A request whose answer ends by itself."""
        return Generation(request_id, self.brief_prompt, cap, Sampling())

    def long(self, request_id: str, cap: int = 4000) -> Generation:
        """A request that takes longer than any test waits, unless it has a small cap."""
        return Generation(request_id, self.long_prompt, cap, Sampling())


def subject_of(name: str, engine: Engine) -> Subject:
    """The scripted engine must be told how to be brief; the real one knows the capital."""
    tokenizer = Tokenizer.load(model_folder())
    brief = CAPITAL + (' [[script {"text": "Paris."}]]' if name == "scripted" else "")
    prompts = [tokenizer.encode_chat([Turn("user", text)]) for text in (brief, "Write a long story about a fox.")]
    return Subject(name, engine, tokenizer, *prompts)


def small(blocks: int) -> VllmConfig:
    """With so many blocks to use, and one that vLLM uses itself."""
    return VllmConfig(model_folder(), max_model_len=WINDOW, kv_cache_blocks=blocks + 1, drain_s=1)
