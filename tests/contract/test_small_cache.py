"""A burst of long prompts on real vLLM with a small KV cache: runs wait, and none is preempted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from chat.models import Chat, Run, Status
from inference.engine import EngineDead, FinishReason, Generation, Sampling
from inference.tokens import Tokenizer, Turn
from inference.vllm_engine import VllmEngine
from tests.chat.generating import working_on
from tests.engine_under_test import BLOCKS, WINDOW, small
from tests.real_model import model_folder

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.django_db(transaction=True),
    pytest.mark.asyncio(loop_scope="package"),
    pytest.mark.timeout(300),
]

# A prompt takes 3 blocks, and its answer a fourth as soon as it has a few words. Of 10 blocks three prompts can be had
# at once, and two runs.
BLOCK_TOKENS = 128  # on CPU
RUNS, TOGETHER, PROMPT_TOKENS, CAP = 6, 2, 3 * BLOCK_TOKENS - 6, 20


@pytest.fixture
def runs(new_run: Callable[..., Run], chat: Chat) -> Sequence[Run]:
    made = [new_run(in_chat=Chat.objects.create(owner=chat.owner), text=question(number)) for number in range(RUNS)]
    Run.objects.update(max_output_tokens=CAP)
    return made


def question(number: int) -> str:
    """One whose prompt has just so many tokens, and with no other a beginning in common."""
    text = f"{number} foxes."
    for day in range(100):
        longer = f"{text} On day {day} they found {day * number} apples."
        if len(prompt(f"{longer} Go on.")) > PROMPT_TOKENS:
            break
        text = longer
    while len(prompt(f"{text} Go on.")) < PROMPT_TOKENS:
        text += " And on."
    return f"{text} Go on."


def prompt(content: str) -> list[int]:
    return Tokenizer.load(model_folder()).encode_chat([Turn("user", content)])


async def test_a_burst_of_long_prompts_preempts_nobody_and_past_the_gate_it_does(
    small_engine: VllmEngine, runs: Sequence[Run]
) -> None:
    engine = small_engine
    assert (engine.kv_cache.blocks, engine.kv_cache.block_tokens, engine.context_window) == (10, BLOCK_TOKENS, WINDOW)
    async with working_on(engine) as worker:
        await asyncio.gather(*(worker.attempts.run(run.pk) for run in runs))
        rows = [await worker.row(run) for run in runs]
        report = worker.attempts.report()

    assert {row.status for row in rows} == {Status.DONE}
    assert report["kv_waits"] == RUNS - TOGETHER
    assert (report["peak_running"], report["preemptions"], report["kv_blocks_free"]) == (TOGETHER, 0, BLOCKS)

    await asyncio.gather(*(answer(engine, number) for number in range(TOGETHER + 1)))

    assert engine.load().peak_running == TOGETHER + 1
    assert engine.load().preemptions > 0


async def answer(engine: VllmEngine, number: int) -> None:
    """As a run is answered that came in without asking for blocks."""
    generation = Generation(f"past:{number}", prompt(question(number)), CAP, Sampling())
    steps = [step async for step in engine.generate(generation)]
    assert steps[-1].finish_reason is FinishReason.LENGTH


async def test_a_cache_that_does_not_hold_a_window_is_refused_with_the_numbers() -> None:
    with pytest.raises(EngineDead, match="holds 896 tokens, fewer than the context window of 1024"):
        await VllmEngine(small(7)).start()
