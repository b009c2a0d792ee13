"""The watchdog knows a dead or silent engine from one that is idle, slow or busy with a long prompt."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from inference.engine import EngineDead, Generation, Sampling, Step
from inference.scripted_engine import Failure, Script, ScriptedEngine
from inference.tokens import Tokenizer, Turn
from inference.watchdog import Watchdog
from tests.real_model import model_folder

CHECK_S = 0.02
SILENCE_S = 10 * CHECK_S
PATIENCE_S = 20
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


def asking(tokenizer: Tokenizer, request_id: str = "run:1") -> Generation:
    return Generation(request_id, tokenizer.encode_chat([Turn("user", "Hi")]), 4000, Sampling())


async def read(engine: ScriptedEngine, generation: Generation) -> list[Step]:
    return [step async for step in engine.generate(generation)]


class Pool:
    """Whom the watchdog tells."""

    def __init__(self) -> None:
        self.deaths: list[EngineDead] = []
        self.heard = asyncio.Event()

    def __call__(self, death: EngineDead) -> None:
        self.deaths.append(death)
        self.heard.set()


def watching(engine: ScriptedEngine, pool: Pool) -> Watchdog:
    return Watchdog(engine, SILENCE_S, pool, CHECK_S)


async def checks(count: int) -> None:
    """Let the watchdog look so many times."""
    await asyncio.sleep(count * CHECK_S)


async def test_an_idle_engine_that_dies_is_told_once(start: Start) -> None:
    engine, pool = await start(Script()), Pool()
    async with asyncio.timeout(PATIENCE_S), watching(engine, pool):
        await engine.stop()
        await pool.heard.wait()
        await checks(5)

    assert len(pool.deaths) == 1


async def test_a_silent_engine_is_killed_and_every_run_learns_of_it(
    start: Start, tokenizer: Tokenizer, caplog: pytest.LogCaptureFixture
) -> None:
    engine, pool = await start(Script(failure=Failure.ENGINE_SILENT)), Pool()
    async with asyncio.timeout(PATIENCE_S), watching(engine, pool):
        readers = [asyncio.create_task(read(engine, asking(tokenizer, f"run:{n}"))) for n in range(3)]
        await pool.heard.wait()
        for reader in readers:
            with pytest.raises(EngineDead):
                await reader

    with pytest.raises(EngineDead):
        engine.check_health()
    assert "requests=3 running=3 waiting=0" in caplog.text


async def test_a_long_prompt_that_brings_no_output_yet_is_no_silence(start: Start, tokenizer: Tokenizer) -> None:
    engine, pool = await start(Script(first_token_ms=3_600_000, tokens_per_s=500)), Pool()
    async with asyncio.timeout(PATIENCE_S), watching(engine, pool):
        reader = asyncio.create_task(read(engine, asking(tokenizer)))
        await checks(40)
        assert not reader.done()
        reader.cancel()
        await asyncio.wait({reader})

    assert pool.deaths == []


async def test_an_engine_without_work_may_be_silent(start: Start) -> None:
    engine, pool = await start(Script()), Pool()
    async with watching(engine, pool):
        await checks(40)

    assert pool.deaths == []
