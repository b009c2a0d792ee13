"""What the scripted engine does beyond the contract that it shares with the real one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing
from itertools import pairwise

import pytest

from inference.engine import (
    EngineDead,
    EngineError,
    FinishReason,
    Generation,
    GenerationFailed,
    PromptRejected,
    Sampling,
    Step,
)
from inference.scripted_engine import Failure, Script, ScriptedEngine
from inference.tokens import Tokenizer, Turn
from tests.real_model import model_folder

FAST = 2000.0
Start = Callable[[Script], Awaitable[ScriptedEngine]]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.load(model_folder())


@pytest.fixture
async def start(tokenizer: Tokenizer) -> AsyncIterator[Start]:
    async with AsyncExitStack() as stack:

        async def begin(script: Script) -> ScriptedEngine:
            engine = ScriptedEngine(script, tokenizer)
            await engine.start()
            stack.push_async_callback(engine.stop)
            return engine

        yield begin


def asking(tokenizer: Tokenizer, question: str, request_id: str = "run:1", cap: int = 4000) -> Generation:
    return Generation(request_id, tokenizer.encode_chat([Turn("user", question)]), cap, Sampling())


async def read(engine: ScriptedEngine, generation: Generation) -> list[Step]:
    return [step async for step in engine.generate(generation)]


async def ids_until_failure(engine: ScriptedEngine, generation: Generation) -> tuple[list[int], type[EngineError]]:
    ids: list[int] = []
    try:
        async for step in engine.generate(generation):
            ids += step.token_ids
    except EngineError as error:
        return ids, type(error)
    pytest.fail("it did not fail")


def text(tokenizer: Tokenizer, steps: list[Step]) -> str:
    return tokenizer.decode([token_id for step in steps for token_id in step.token_ids])


async def test_it_says_the_text_of_its_script(start: Start, tokenizer: Tokenizer) -> None:
    engine = await start(Script(text="سلام 👩‍👧, 你好.", tokens_per_s=FAST))
    steps = await read(engine, asking(tokenizer, "?"))
    assert text(tokenizer, steps) == "سلام 👩‍👧, 你好."
    assert steps[-1].finish_reason is FinishReason.STOP


async def test_a_prompt_can_bring_its_own_script_and_the_last_one_counts(start: Start, tokenizer: Tokenizer) -> None:
    engine = await start(Script(text="default", tokens_per_s=FAST))
    wish = json.dumps({"text": 'a "quoted" ]] 👍 }', "split_characters": True, "tokens_per_step": 3})
    question = f'[[script {{"text": "earlier"}}]] and then [[script {wish}]] please'

    steps = await read(engine, asking(tokenizer, question))

    assert text(tokenizer, steps) == 'a "quoted" ]] 👍 }'
    assert {len(step.token_ids) for step in steps[:-2]} == {3}
    assert sum(len(step.token_ids) for step in steps) == len('a "quoted" ]] 👍 }'.encode())


@pytest.mark.parametrize(
    "wish", ["{", '{"slots": 5}', '{"prefix_caching": true}', '{"colour": 1}', '{"failure": "rain"}', "[1]", "7"]
)
async def test_a_script_that_cannot_be_read_is_refused(start: Start, tokenizer: Tokenizer, wish: str) -> None:
    engine = await start(Script(tokens_per_s=FAST))
    with pytest.raises(PromptRejected):
        await read(engine, asking(tokenizer, f"[[script {wish}]]"))
    assert await read(engine, asking(tokenizer, "?"))


async def test_answers_differ_by_prompt_and_have_the_length_that_was_asked_for(
    start: Start, tokenizer: Tokenizer
) -> None:
    engine = await start(Script(chars=500, tokens_per_s=FAST))
    texts = {text(tokenizer, await read(engine, asking(tokenizer, question))) for question in "abcde"}
    assert len(texts) == 5
    assert {len(one) for one in texts} == {500}


async def test_an_answer_that_was_begun_goes_on_wherever_it_was_cut(start: Start, tokenizer: Tokenizer) -> None:
    engine = await start(Script(chars=60, split_characters=True, tokens_per_s=FAST))
    generation = asking(tokenizer, "?")
    ids = [token_id for step in await read(engine, generation) for token_id in step.token_ids]

    for cut in range(0, len(ids) + 1, 3):
        prompt = [*generation.prompt_ids, *ids[:cut]]
        steps = await read(engine, Generation(f"run:{cut}", prompt, 4000, Sampling()))
        assert [token_id for step in steps for token_id in step.token_ids] == ids[cut:]


async def test_no_more_run_than_there_are_slots_and_the_rest_wait_their_turn(
    start: Start, tokenizer: Tokenizer
) -> None:
    engine = await start(Script(slots=3, text="a b c d e f", tokens_per_s=100))
    tasks = [asyncio.create_task(read(engine, asking(tokenizer, "?", f"run:{n}"))) for n in range(10)]
    seen = []
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0.005)
        seen.append(engine.load())

    assert max(load.running for load in seen) == 3
    assert max(load.waiting for load in seen) == 7
    assert engine.load().peak_running == 3
    assert max(load.kv_cache_usage for load in seen) > 0
    assert (engine.load().running, engine.load().waiting, engine.load().kv_cache_usage) == (0, 0, 0)


def cache_for_two(tokenizer: Tokenizer, answers: int) -> Script:
    """Room for the prompts of two short questions, and for so many tokens of answers; an answer has 17."""
    blocks = 2 * len(asking(tokenizer, "?").prompt_ids) + answers
    return Script(text="a b c d " * 4, tokens_per_s=200, kv_blocks=blocks, block_tokens=1, context_window=64)


async def test_the_last_to_come_is_preempted_when_the_cache_is_outgrown(start: Start, tokenizer: Tokenizer) -> None:
    engine = await start(cache_for_two(tokenizer, answers=20))
    ends: list[str] = []

    async def told(name: str) -> str:
        steps = await read(engine, asking(tokenizer, "?", name))
        ends.append(name)
        return text(tokenizer, steps)

    first, second = await asyncio.gather(told("first"), told("second"))

    assert first == second == "a b c d " * 4
    assert ends == ["first", "second"]
    assert (engine.load().preemptions, engine.load().peak_running) == (1, 2)


async def test_a_cache_for_all_that_two_may_say_preempts_neither(start: Start, tokenizer: Tokenizer) -> None:
    engine = await start(cache_for_two(tokenizer, answers=36))
    await asyncio.gather(*(read(engine, asking(tokenizer, "?", name)) for name in ("first", "second")))
    assert engine.load().preemptions == 0


async def test_what_was_preempted_waits_once_more_as_for_a_first_token(start: Start, tokenizer: Tokenizer) -> None:
    script = Script(text="a b c d " * 100, tokens_per_s=200, kv_blocks=196, block_tokens=1, context_window=196)
    engine = await start(script)
    times: list[float] = []

    async def read_second() -> None:
        async for _ in engine.generate(asking(tokenizer, '[[script {"first_token_ms": 300}]]', "second")):
            times.append(asyncio.get_running_loop().time())

    async with aclosing(engine.generate(asking(tokenizer, "?", "first"))) as first:
        await anext(first)
        second = asyncio.create_task(read_second())
        while not engine.load().preemptions:
            await anext(first)
    await second  # there were blocks again at once

    assert max(later - earlier for earlier, later in pairwise(times)) > 0.2


async def test_one_starts_when_there_are_blocks_for_its_prompt(start: Start, tokenizer: Tokenizer) -> None:
    small = Script(text="a b c", first_token_ms=60_000, kv_blocks=130, block_tokens=1, context_window=128)
    engine = await start(small)
    large, little = "word " * 60, "?"
    tasks = [asyncio.create_task(read(engine, asking(tokenizer, large, f"{n}"))) for n in range(2)]
    tasks.append(asyncio.create_task(read(engine, asking(tokenizer, little, "little"))))
    await asyncio.sleep(0.1)

    assert (engine.load().running, engine.load().waiting, engine.load().preemptions) == (1, 2, 0)
    await engine.abort("0")
    await asyncio.sleep(0.1)
    assert (engine.load().running, engine.load().waiting) == (2, 0)
    for name in ("1", "little"):
        await engine.abort(name)
    await asyncio.gather(*tasks)


async def test_a_cache_that_does_not_hold_a_window_is_refused(start: Start) -> None:
    with pytest.raises(EngineDead, match="holds 1024 tokens, fewer than the context window of 1025"):
        await start(Script(kv_blocks=64, block_tokens=16, context_window=1025))
    await start(Script(kv_blocks=64, block_tokens=16, context_window=1024))


@pytest.mark.parametrize(("wished", "told"), [(5, 5), (10_000, None)])
async def test_cached_tokens_are_as_the_prompt_has_it_and_no_more_than_it_has(
    start: Start, tokenizer: Tokenizer, wished: int, told: int | None
) -> None:
    engine = await start(Script(text="a b c", tokens_per_s=FAST))
    generation = asking(tokenizer, f'[[script {{"cached_tokens": {wished}}}]]')
    steps = await read(engine, generation)
    assert steps[0].cached_tokens == (told or len(generation.prompt_ids))
    assert {step.cached_tokens for step in steps[1:]} == {0}


async def test_one_that_waits_can_be_aborted(start: Start, tokenizer: Tokenizer) -> None:
    engine = await start(Script(slots=1, tokens_per_s=100))
    first = asyncio.create_task(read(engine, asking(tokenizer, "?", "first")))
    waiting = asking(tokenizer, "?", "second")
    second = asyncio.create_task(read(engine, waiting))
    await asyncio.sleep(0.05)
    await engine.abort("second")
    assert await second == [Step((), FinishReason.ABORT, input_tokens=len(waiting.prompt_ids))]
    assert not first.done()
    await engine.abort("first")
    await first


async def test_the_first_token_waits_as_long_as_the_script_says_and_holds_a_slot(
    start: Start, tokenizer: Tokenizer
) -> None:
    engine = await start(Script(text="x", first_token_ms=60_000, tokens_per_s=FAST))
    slow = asyncio.create_task(read(engine, asking(tokenizer, "?", "slow")))
    quick = await read(engine, asking(tokenizer, '[[script {"text": "y", "first_token_ms": 0}]]', "quick"))
    assert text(tokenizer, quick) == "y"
    assert not slow.done()
    assert engine.load().running == 1
    await engine.abort("slow")
    await slow


async def test_a_failure_comes_after_as_many_tokens_as_the_script_says(start: Start, tokenizer: Tokenizer) -> None:
    engine = await start(Script(failure=Failure.GENERATION_FAILED, fail_after_tokens=5, tokens_per_s=FAST))
    generation = asking(tokenizer, "?")

    ids, failure = await ids_until_failure(engine, generation)

    assert (len(ids), failure) == (5, GenerationFailed)
    prompt = [*generation.prompt_ids, *ids]
    assert (await read(engine, Generation("run:2", prompt, 4000, Sampling())))[-1].finish_reason is FinishReason.STOP


async def test_a_failure_at_once_strikes_every_attempt(start: Start, tokenizer: Tokenizer) -> None:
    engine = await start(Script(failure=Failure.GENERATION_FAILED, tokens_per_s=FAST))
    for attempt in range(2):
        ids, failure = await ids_until_failure(engine, asking(tokenizer, "?", f"run:{attempt}"))
        assert (ids, failure) == ([], GenerationFailed)


async def test_a_dead_engine_fails_every_request_for_good(start: Start, tokenizer: Tokenizer) -> None:
    engine = await start(Script(tokens_per_s=100))
    bystander = asyncio.create_task(read(engine, asking(tokenizer, "?", "bystander")))
    killer = asking(tokenizer, '[[script {"failure": "engine_dead", "fail_after_tokens": 2}]]', "killer")

    ids, failure = await ids_until_failure(engine, killer)

    assert (len(ids), failure) == (2, EngineDead)
    with pytest.raises(EngineDead):
        await bystander
    with pytest.raises(EngineDead):
        engine.check_health()
    with pytest.raises(EngineDead):
        await read(engine, asking(tokenizer, "?", "late"))


async def test_a_silent_engine_says_nothing_more_yet_lets_go(start: Start, tokenizer: Tokenizer) -> None:
    engine = await start(Script(tokens_per_s=FAST))
    bystander = asyncio.create_task(read(engine, asking(tokenizer, "?", "bystander")))
    silencer = asyncio.create_task(
        read(engine, asking(tokenizer, '[[script {"failure": "engine_silent", "fail_after_tokens": 1}]]', "silencer"))
    )
    _, pending = await asyncio.wait({bystander, silencer}, timeout=0.3)

    assert pending == {bystander, silencer}
    engine.check_health()
    await engine.stop()
    assert (await bystander)[-1].finish_reason is FinishReason.ABORT
    assert (await silencer)[-1].finish_reason is FinishReason.ABORT


async def test_an_unending_answer_stands_whole_until_it_is_aborted_and_holds_up_nobody(
    start: Start, tokenizer: Tokenizer
) -> None:
    engine = await start(Script(tokens_per_s=FAST))
    unending = asyncio.create_task(
        read(engine, asking(tokenizer, '[[script {"text": "Hello you", "unending": true}]]', "unending"))
    )
    bystander = await read(engine, asking(tokenizer, "?", "bystander"))
    assert bystander[-1].finish_reason is FinishReason.STOP
    assert not unending.done()

    await engine.abort("unending")

    *steps, last = await unending
    ids = [token for step in steps for token in step.token_ids]
    assert (tokenizer.decode(ids), last.finish_reason) == ("Hello you", FinishReason.ABORT)


async def test_a_script_may_refuse_a_prompt(start: Start, tokenizer: Tokenizer) -> None:
    engine = await start(Script(tokens_per_s=FAST))
    with pytest.raises(PromptRejected):
        await read(engine, asking(tokenizer, '[[script {"failure": "prompt_rejected"}]]'))
    assert engine.load().running == engine.load().waiting == 0


async def test_an_answer_ends_where_the_window_does(start: Start, tokenizer: Tokenizer) -> None:
    engine = await start(Script(context_window=64, tokens_per_s=FAST))
    generation = asking(tokenizer, "?")
    steps = await read(engine, generation)
    assert steps[-1].finish_reason is FinishReason.LENGTH
    assert len(generation.prompt_ids) + sum(len(step.token_ids) for step in steps) == 64


async def test_a_thousand_answers_at_once_need_one_task_of_the_engine(start: Start, tokenizer: Tokenizer) -> None:
    engine = await start(Script(slots=1000, text="a b c d e", tokens_per_s=50))
    before = len(asyncio.all_tasks())
    tasks = [asyncio.create_task(read(engine, asking(tokenizer, "?", f"run:{n}"))) for n in range(1000)]
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) - before == 1000  # the readers alone
    assert {text(tokenizer, steps) for steps in await asyncio.gather(*tasks)} == {"a b c d e"}
    assert engine.load().peak_running == 1000


def test_a_worker_process_takes_its_script_from_the_environment() -> None:
    environment = {
        "SCRIPT_SLOTS": "4",
        "SCRIPT_TOKENS_PER_S": "12.5",
        "SCRIPT_TEXT": "hello",
        "SCRIPT_SPLIT_CHARACTERS": "1",
        "SCRIPT_PREFIX_CACHING": "1",
        "SCRIPT_PREFILL_TOKENS_PER_S": "2.5",
        "SCRIPT_FAILURE": "engine_dead",
        "SCRIPT_FAIL_AFTER_TOKENS": "3",
        "SCRIPT_CHARS": "",
        "PATH": "/bin",
    }
    assert Script.from_environment(environment) == Script(
        slots=4,
        tokens_per_s=12.5,
        text="hello",
        split_characters=True,
        prefix_caching=True,
        prefill_tokens_per_s=2.5,
        failure=Failure.ENGINE_DEAD,
        fail_after_tokens=3,
    )
    with pytest.raises(ValueError, match="rain"):
        Script.from_environment({"SCRIPT_FAILURE": "rain"})


async def test_engines_of_different_salts_answer_the_same_question_otherwise(
    start: Start, tokenizer: Tokenizer
) -> None:
    engines = [await start(Script(chars=40, salt=salt, tokens_per_s=FAST)) for salt in (1, 1, 2)]

    first, same, other = [text(tokenizer, await read(engine, asking(tokenizer, "?"))) for engine in engines]

    assert first == same != other
