"""The contract of `inference.engine.Engine`, on the scripted engine and on real vLLM."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace

import psutil
import pytest

from inference.engine import EngineDead, FinishReason, Generation, PromptRejected, Sampling, Step
from inference.tokens import Turn
from tests.engine_under_test import REAL, Subject

pytestmark = pytest.mark.asyncio(loop_scope="module")

PATIENCE_S = 30
IDLE_PATIENCE_S = 10  # far less than a request that was left running would take to end by itself
only_real = pytest.mark.parametrize("subject", [REAL], indirect=True)


async def read(subject: Subject, generation: Generation) -> list[Step]:
    return [step async for step in subject.engine.generate(generation)]


def ids_of(steps: list[Step]) -> list[int]:
    return [token_id for step in steps for token_id in step.token_ids]


async def eventually(condition: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
    """Wait for `condition`, and fail when it does not come about."""
    async with asyncio.timeout(patience_s):
        while not condition():  # noqa: ASYNC110 - an engine's load has no event
            await asyncio.sleep(0.01)


async def becomes_idle(subject: Subject) -> None:
    """Nothing runs and nothing waits, by the engine's own account."""
    load = subject.engine.load
    await eventually(lambda: load().running == load().waiting == 0, IDLE_PATIENCE_S)


async def runs(subject: Subject) -> None:
    await eventually(lambda: subject.engine.load().running > 0)


async def test_steps_end_with_the_only_finish_reason(subject: Subject) -> None:
    steps = await read(subject, subject.brief("ends"))
    assert steps[-1].finish_reason is FinishReason.STOP
    assert all(step.finish_reason is None for step in steps[:-1])


async def test_the_id_that_ends_the_sequence_is_not_passed_on(subject: Subject) -> None:
    ids = ids_of(await read(subject, subject.brief("eos")))
    assert ids
    assert not set(ids) & subject.tokenizer.eos_ids


@pytest.mark.parametrize("cap", [1, 12])
async def test_the_cap_ends_an_answer_at_exactly_so_many_ids(subject: Subject, cap: int) -> None:
    steps = await read(subject, subject.long(f"cap:{cap}", cap))
    assert steps[-1].finish_reason is FinishReason.LENGTH
    assert len(ids_of(steps)) == cap


@only_real
async def test_the_capital_of_france_is_paris(subject: Subject) -> None:
    assert "Paris" in subject.tokenizer.decode(ids_of(await read(subject, subject.brief("paris"))))


async def test_eight_requests_at_once_run_together(subject: Subject) -> None:
    together = 0

    async def watch(number: int) -> list[Step]:
        nonlocal together
        steps = []
        async for step in subject.engine.generate(subject.long(f"together:{number}", 12)):
            together = max(together, subject.engine.load().running)
            steps.append(step)
        return steps

    answers = await asyncio.gather(*(watch(number) for number in range(8)))

    assert together == 8
    assert subject.engine.load().peak_running >= 8
    assert all(len(ids_of(steps)) == 12 for steps in answers)
    await becomes_idle(subject)


async def test_what_runs_is_counted_and_its_steps_too(subject: Subject) -> None:
    before = subject.engine.load()
    async with aclosing(subject.engine.generate(subject.long("counted"))) as steps:
        for _ in range(5):
            await anext(steps)
        assert subject.engine.load().requests == 1
        assert subject.engine.load().steps >= before.steps + 5
    await becomes_idle(subject)
    assert subject.engine.load().requests == 0


async def test_tokens_in_and_out_are_counted_and_those_looked_up_in_the_prefix_cache(subject: Subject) -> None:
    before, generation = subject.engine.load(), subject.long("tokens", 12)
    prompt = len(generation.prompt_ids)
    await read(subject, generation)

    def counted() -> tuple[int, int, int]:
        load = subject.engine.load()
        grown = (load.input_tokens - before.input_tokens, load.output_tokens - before.output_tokens)
        return (*grown, load.prefix_queries - before.prefix_queries)

    await eventually(lambda: counted() == (prompt, 12, prompt))
    assert 0 <= subject.engine.load().prefix_hits <= subject.engine.load().prefix_queries


async def test_a_greedy_answer_is_the_same_twice(subject: Subject) -> None:
    first, second = [ids_of(await read(subject, subject.long(f"greedy:{n}", 16))) for n in range(2)]
    assert first == second


@pytest.mark.parametrize("cut", [1, 7, 15])
async def test_an_answer_that_was_begun_goes_on_as_it_would_have(subject: Subject, cut: int) -> None:
    whole = ids_of(await read(subject, subject.long(f"whole:{cut}", 24)))
    begun = replace(subject.long(f"rest:{cut}", 24 - cut), prompt_ids=[*subject.long_prompt, *whole[:cut]])
    assert ids_of(await read(subject, begun)) == whole[cut:]


async def test_an_answer_goes_on_to_the_same_end(subject: Subject) -> None:
    whole = ids_of(await read(subject, subject.brief("whole")))
    begun = Generation("rest", [*subject.brief_prompt, *whole[:-1]], 60, Sampling())
    steps = await read(subject, begun)
    assert ids_of(steps) == whole[-1:]
    assert steps[-1].finish_reason is FinishReason.STOP


@pytest.mark.parametrize("turns_of_the_loop", [1, 2, 3, 5, 10])
async def test_an_abort_just_after_the_start_is_not_lost(subject: Subject, turns_of_the_loop: int) -> None:
    reader = asyncio.create_task(read(subject, subject.long(f"early:{turns_of_the_loop}")))
    for _ in range(turns_of_the_loop):
        await asyncio.sleep(0)

    await subject.engine.abort(f"early:{turns_of_the_loop}")

    steps = await asyncio.wait_for(reader, PATIENCE_S)
    assert steps[-1].finish_reason is FinishReason.ABORT
    await becomes_idle(subject)


async def test_an_abort_midway_ends_the_answer_and_frees_the_slot(subject: Subject) -> None:
    steps: list[Step] = []
    async with asyncio.timeout(PATIENCE_S):
        async for step in subject.engine.generate(subject.long("midway")):
            steps.append(step)
            if len(steps) == 3:
                await subject.engine.abort("midway")
    assert steps[-1].finish_reason is FinishReason.ABORT
    assert len(ids_of(steps)) < 4000
    await becomes_idle(subject)


async def test_an_abort_of_nobody_and_of_one_that_ended_is_no_error(subject: Subject) -> None:
    await subject.engine.abort("nobody")
    await read(subject, subject.brief("ended"))
    await subject.engine.abort("ended")


async def test_closing_the_iterator_frees_the_slot(subject: Subject) -> None:
    async with aclosing(subject.engine.generate(subject.long("closed"))) as steps:
        async for _ in steps:
            await runs(subject)
            break
    await becomes_idle(subject)


async def test_readers_cancelled_at_random_moments_leak_nothing(subject: Subject) -> None:
    dice = random.Random(11)
    rounds, longest_s = (10, 1.5) if subject.name == "vllm" else (50, 0.1)
    for number in range(rounds):
        reader = asyncio.create_task(read(subject, subject.long(f"cancelled:{number}")))
        await asyncio.sleep(dice.choice([0, 0, dice.random() * 0.01, dice.random() * longest_s]))
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
    await becomes_idle(subject)
    assert (await read(subject, subject.brief("after")))[-1].finish_reason is FinishReason.STOP


async def test_a_reader_cancelled_twice_leaks_nothing(subject: Subject) -> None:
    reader = asyncio.create_task(read(subject, subject.long("twice")))
    await asyncio.sleep(0)
    reader.cancel()
    await asyncio.sleep(0)
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    await asyncio.sleep(0.1)
    await becomes_idle(subject)
    assert await read(subject, subject.brief("twice"))  # the id is free again


@pytest.mark.parametrize(
    ("prompt", "cap"),
    [([], 5), ([10**6], 5), ([-1], 5), ([49152], 5), ([5] * 9000, 5), ([5] * 8192, 5), ([5], 0)],
    ids=["empty", "far out of vocabulary", "negative", "just out of vocabulary", "too long", "no room", "no cap"],
)
async def test_a_bad_prompt_is_refused_and_the_engine_goes_on(subject: Subject, prompt: list[int], cap: int) -> None:
    with pytest.raises(PromptRejected):
        await read(subject, Generation("bad", prompt, cap, Sampling()))
    assert await read(subject, subject.brief("bad"))
    await becomes_idle(subject)


async def test_a_request_id_serves_one_request_at_a_time(subject: Subject) -> None:
    async with aclosing(subject.engine.generate(subject.long("same"))) as steps:
        await anext(steps)
        with pytest.raises(ValueError, match="same"):
            await read(subject, subject.brief("same"))
        assert (await anext(steps)).finish_reason is None
    assert await read(subject, subject.brief("same"))


async def turn(subject: Subject, name: str, prompt: list[int], cap: int = 1) -> list[Step]:
    """The steps of one answer, all of which count the prompt as it is."""
    steps = await read(subject, Generation(name, prompt, cap, Sampling()))
    assert {step.input_tokens for step in steps} == {len(prompt)}
    return steps


def chat_of(subject: Subject, opening: str, tokens: int) -> list[int]:
    """A prompt of so many tokens with a beginning of its own."""
    shortest = subject.tokenizer.encode_chat([Turn("user", opening)])
    filled = opening + " and" * (tokens - len(shortest))
    prompt = subject.tokenizer.encode_chat([Turn("user", filled)])
    assert len(prompt) == tokens
    return prompt


async def test_a_repeated_prompt_comes_from_the_prefix_cache(subject: Subject) -> None:
    """All its full blocks but the one with its last token, which is to be computed."""
    block = subject.engine.kv_cache.block_tokens
    for tokens, cached in ((2 * block - 1, block), (2 * block, block), (2 * block + 1, 2 * block)):
        prompt = chat_of(subject, f"Repeat {tokens}", tokens)
        first, second = [await turn(subject, f"cache:{n}", prompt) for n in range(2)]
        assert (first[0].cached_tokens, second[0].cached_tokens) == (0, cached)


@pytest.mark.parametrize(("tokens_beyond", "cached_blocks"), [(-1, 1), (0, 1), (1, 2)])
async def test_the_next_turn_finds_the_answer_too_but_for_its_last_token(
    subject: Subject, tokens_beyond: int, cached_blocks: int
) -> None:
    """The last token of an answer that met its cap was never computed."""
    block, cap = subject.engine.kv_cache.block_tokens, 10
    said = chat_of(subject, f"Earlier {tokens_beyond}", 2 * block + tokens_beyond - cap - len(subject.long_prompt))
    prompt = [*said, *subject.long_prompt]
    answer = ids_of(await turn(subject, "turn:1", prompt, cap))
    assert len(answer) == cap

    steps = await turn(subject, "turn:2", [*prompt, *answer, *subject.long_prompt])

    assert steps[0].cached_tokens == cached_blocks * block


async def test_the_next_turn_finds_all_of_an_answer_that_came_to_its_end(subject: Subject) -> None:
    """Its last token was computed: the end of the sequence came after it."""
    block = subject.engine.kv_cache.block_tokens
    said = await an_answer_that_fills_blocks(subject, 2)

    steps = await turn(subject, "end:2", [*said, *subject.long_prompt])

    assert (len(said), steps[0].cached_tokens) == (2 * block, 2 * block)


async def an_answer_that_fills_blocks(subject: Subject, blocks: int) -> list[int]:
    """A prompt with its whole answer, so many tokens in all; how long the real engine's answer is, only it can tell."""
    tokens = blocks * subject.engine.kv_cache.block_tokens
    answer: list[int] = []
    for attempt in range(5):
        said = chat_of(subject, f"End {attempt}", tokens - len(answer) - len(subject.brief_prompt))
        prompt = [*said, *subject.brief_prompt]
        steps = await turn(subject, f"end:{attempt}", prompt, 60)
        answer = ids_of(steps)
        assert steps[-1].finish_reason is FinishReason.STOP
        if len(prompt) + len(answer) == tokens:
            return [*prompt, *answer]
    pytest.fail("no two answers were of one length")


async def test_two_of_one_prompt_at_once_compute_it_once(subject: Subject) -> None:
    block = subject.engine.kv_cache.block_tokens
    prompt, before = chat_of(subject, "Twins", 2 * block), subject.engine.load()

    twins = await asyncio.gather(*(turn(subject, f"twin:{n}", prompt, 5) for n in range(2)))

    assert sorted(steps[0].cached_tokens for steps in twins) == [0, block]
    load = subject.engine.load
    await eventually(lambda: load().prefix_queries - before.prefix_queries == 4 * block)
    assert load().prefix_hits - before.prefix_hits == block


@only_real
async def test_the_death_of_engine_core_reaches_every_reader(subject: Subject) -> None:
    """Last in this file: the engine is of no use afterwards."""
    readers = [asyncio.create_task(read(subject, subject.long(f"dying:{n}"))) for n in range(2)]
    await runs(subject)
    children = psutil.Process().children(recursive=True)

    max(children, key=lambda child: child.memory_info().rss if child.ppid() == psutil.Process().pid else 0).kill()

    for reader in readers:
        with pytest.raises(EngineDead):
            await asyncio.wait_for(reader, PATIENCE_S)
    with pytest.raises(EngineDead):
        subject.engine.check_health()
    with pytest.raises(EngineDead):
        await read(subject, subject.brief("late"))
