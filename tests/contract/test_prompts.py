"""Prompts of random chats through real vLLM: it takes each, and counts as many tokens as we do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count, islice
from uuid import uuid4

import pytest

from chat import context
from chat.past import Line, Past
from inference.engine import FinishReason, Generation, Sampling
from inference.tokens import Tokenizer
from inference.vllm_engine import VllmEngine
from scheduler.models import Model
from tests.chat.random_chats import Author, RandomChat
from tests.engine_under_test import WINDOW
from tests.long_form import times
from tests.real_model import model_folder

pytestmark = [pytest.mark.vllm, pytest.mark.asyncio(loop_scope="package"), pytest.mark.timeout(600)]

PROMPTS = times(8, long=50)
MOST_TOKENS = WINDOW - 24


async def test_the_engine_takes_prompts_of_random_chats_and_counts_the_same_tokens(small_engine: VllmEngine) -> None:
    for seed, ids in islice(prompts_that_fit(), PROMPTS):
        generation = Generation(f"random:{seed}", ids, 1, Sampling())
        steps = [step async for step in small_engine.generate(generation)]
        assert {step.input_tokens for step in steps} == {len(ids)}, f"seed {seed}"
        assert steps[-1].finish_reason in {FinishReason.LENGTH, FinishReason.STOP}, f"seed {seed}"


def prompts_that_fit() -> Iterator[tuple[int, list[int]]]:
    """With the seeds of their chats, which have no rows here."""
    tokenizer = Tokenizer.load(model_folder())
    for seed in count():
        made_up = Author(seed, tokenizer).chat("model", "other")
        if ids := next((ids for ids in prompts(made_up, tokenizer) if len(ids) <= MOST_TOKENS), None):
            yield seed, ids


def prompts(made_up: RandomChat, tokenizer: Tokenizer) -> Iterator[list[int]]:
    """All that there may be of a chat, the longest first."""
    model = Model(system_prompt=made_up.system_prompt)
    past = Past(uuid4(), behind(made_up.lines, made_up.epoch.upto), made_up.epoch).asked(made_up.question)
    for layout in context.layouts(past):
        yield tokenizer.encode_chat(context.turns(past, model, layout))


def behind(lines: Sequence[Line], position: int) -> list[Line]:
    return [line for line in lines if line.position > position]
