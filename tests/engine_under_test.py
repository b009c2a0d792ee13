"""An engine under test, with a question it answers briefly and one to which it has much to say."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from inference.engine import Engine, Generation, Sampling
from inference.tokens import Tokenizer

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
