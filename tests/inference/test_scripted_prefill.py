"""What prompts cost the scripted engine: the time they take, and what its prefix cache saves of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from inference.engine import Generation, Sampling, Step
from inference.scripted_engine import Script, ScriptedEngine
from inference.tokens import Tokenizer
from tests.real_model import model_folder

BLOCK = 16
CACHING = Script(text="a b c d", tokens_per_s=2000, prefix_caching=True, block_tokens=BLOCK)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.load(model_folder())


@asynccontextmanager
async def running(script: Script, tokenizer: Tokenizer) -> AsyncIterator[ScriptedEngine]:
    engine = ScriptedEngine(script, tokenizer)
    await engine.start()
    try:
        yield engine
    finally:
        await engine.stop()


def prompt(tokens: int, about: int = 100) -> list[int]:
    """Ids that say nothing; what they are about makes them others."""
    return [about + position % 50 for position in range(tokens)]


async def read(engine: ScriptedEngine, ids: Sequence[int], name: str = "run", cap: int = 1) -> list[Step]:
    return [step async for step in engine.generate(Generation(name, ids, cap, Sampling()))]


async def cached(engine: ScriptedEngine, ids: Sequence[int]) -> int:
    return (await read(engine, ids, "probe"))[0].cached_tokens


async def test_every_step_counts_the_prompt(tokenizer: Tokenizer) -> None:
    async with running(CACHING, tokenizer) as engine:
        steps = await read(engine, prompt(33), cap=40)
    assert len(steps) > 2
    assert {step.input_tokens for step in steps} == {33}


async def test_without_prefix_caching_nothing_is_found_again(tokenizer: Tokenizer) -> None:
    async with running(replace(CACHING, prefix_caching=False), tokenizer) as engine:
        assert [await cached(engine, prompt(64)) for _ in range(2)] == [0, 0]
        assert (engine.load().prefix_queries, engine.load().prefix_hits) == (128, 0)


async def test_queries_and_hits_are_counted(tokenizer: Tokenizer) -> None:
    async with running(CACHING, tokenizer) as engine:
        assert [await cached(engine, prompt(64)) for _ in range(2)] == [0, 48]
        assert (engine.load().prefix_queries, engine.load().prefix_hits) == (128, 48)


async def test_the_cache_forgets_what_there_are_no_blocks_for(tokenizer: Tokenizer) -> None:
    small = replace(CACHING, kv_blocks=8, context_window=128)
    async with running(small, tokenizer) as engine:
        await read(engine, prompt(65, about=100))
        assert await cached(engine, prompt(65, about=100)) == 64
        await read(engine, prompt(97, about=300))  # with its answer seven blocks of eight
        assert await cached(engine, prompt(65, about=100)) == BLOCK


async def test_a_wish_for_cached_tokens_comes_before_what_is_cached(tokenizer: Tokenizer) -> None:
    wishing = replace(CACHING, cached_tokens=5)
    async with running(wishing, tokenizer) as engine:
        assert [await cached(engine, prompt(64)) for _ in range(2)] == [5, 5]
        assert engine.load().prefix_hits == 10


async def test_the_cache_is_asked_when_a_sequence_starts_not_when_it_comes(tokenizer: Tokenizer) -> None:
    one_slot = replace(CACHING, slots=1)
    async with running(one_slot, tokenizer) as engine:
        first, second = await asyncio.gather(*(read(engine, prompt(64), name) for name in ("first", "second")))
    assert (first[0].cached_tokens, second[0].cached_tokens) == (0, 48)


async def test_a_preempted_sequence_counts_as_looked_up_once(tokenizer: Tokenizer) -> None:
    tight = replace(CACHING, text="a b c d " * 10, block_tokens=1, kv_blocks=64, context_window=64)
    async with running(tight, tokenizer) as engine:
        await asyncio.gather(*(read(engine, prompt(20, about), str(about), cap=20) for about in (100, 300)))
        assert engine.load().preemptions > 0
        assert (engine.load().prefix_queries, engine.load().prefix_hits) == (40, 0)


class Clocked(ScriptedEngine):
    """Steps when it is told to, at a time that it is told."""

    async def start(self) -> None:
        self._stepping = asyncio.create_task(asyncio.sleep(3600))

    def ask(self, tokens: int, about: int, cap: int = 1, name: str = "") -> asyncio.Task[list[Step]]:
        return asyncio.create_task(read(self, prompt(tokens, about), name or str(about), cap))

    async def outputs_at(self, *times_s: float) -> list[int]:
        """How many tokens it has said after a step at each of these times."""
        said = []
        for time_s in times_s:
            await asyncio.sleep(0)  # those who were asked are there
            self._step(time_s)
            said.append(self.load().output_tokens)
        return said


# A step takes a second, and a token of a prompt a hundredth.
SLOW = Script(text="a b c d " * 10, tokens_per_s=1, prefill_tokens_per_s=100, prefix_caching=True, block_tokens=BLOCK)


@pytest.fixture
async def clocked(tokenizer: Tokenizer) -> AsyncIterator[Clocked]:
    engine = Clocked(SLOW, tokenizer)
    await engine.start()
    yield engine
    await engine.stop()


async def test_the_first_token_comes_after_the_prompt(clocked: Clocked) -> None:
    clocked.ask(50, about=100)
    assert await clocked.outputs_at(7, 7.45, 7.55) == [0, 0, 1]


async def test_and_then_as_late_as_the_script_has_it(tokenizer: Tokenizer) -> None:
    engine = Clocked(replace(SLOW, first_token_ms=200), tokenizer)
    await engine.start()
    engine.ask(50, about=100)
    assert await engine.outputs_at(7, 7.55, 7.65, 7.75) == [0, 0, 0, 1]
    await engine.stop()


async def test_prompts_are_worked_through_one_after_the_other(clocked: Clocked) -> None:
    clocked.ask(50, about=100)
    clocked.ask(40, about=300)
    assert await clocked.outputs_at(0, 0.45, 0.55, 0.85, 0.95) == [0, 0, 1, 1, 2]


async def test_others_decode_meanwhile(clocked: Clocked) -> None:
    clocked.ask(10, about=300, cap=100)
    assert await clocked.outputs_at(0, 1) == [0, 1]
    clocked.ask(500, about=100)
    assert await clocked.outputs_at(2, 3, 4, 5) == [2, 3, 4, 5]


async def test_cached_tokens_take_no_time(clocked: Clocked) -> None:
    clocked.ask(65, about=100)
    assert await clocked.outputs_at(0, 1) == [0, 1]
    clocked.ask(75, about=100)  # 64 of them are there
    assert await clocked.outputs_at(2, 2.1, 2.12) == [1, 1, 2]


async def test_nobody_starts_while_a_prompt_has_more_than_a_step_to_go(clocked: Clocked) -> None:
    clocked.ask(300, about=100)
    second = clocked.ask(300, about=100, name="second")
    waiting = []
    for time_s in (0, 1.9, 2.1):
        await clocked.outputs_at(time_s)
        waiting.append((clocked.load().running, clocked.load().waiting))
    assert waiting == [(1, 1), (1, 1), (2, 0)]
    assert await clocked.outputs_at(3.01, 3.11, 3.13) == [1, 1, 2]
    assert [step.cached_tokens for step in await second] == [288]


async def test_a_prompt_that_is_given_up_leaves_its_time_and_what_it_had_computed(clocked: Clocked) -> None:
    clocked.ask(300, about=100)
    second = clocked.ask(300, about=100, name="second")
    await clocked.outputs_at(0, 1)

    await clocked.abort("100")

    assert await clocked.outputs_at(1, 3.03, 3.05) == [0, 0, 1]  # 204 tokens later
    assert [step.cached_tokens for step in await second] == [96]
