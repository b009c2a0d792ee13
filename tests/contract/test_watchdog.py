"""An engine that lives and says nothing any more is found out, and ended with all its processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import psutil
import pytest

from inference.engine import EngineDead, Generation, Sampling, Step
from inference.scripted_engine import Script, ScriptedEngine
from inference.tokens import Tokenizer, Turn
from inference.vllm_engine import VllmEngine
from inference.watchdog import Watchdog
from tests.contract.engine_processes import is_gone, spawned_by
from tests.engine_under_test import Subject, subject_of
from tests.real_model import model_folder

# A step on a busy machine takes a second at most.
SILENCE_S = 8.0
PATIENCE_S = 60


@pytest.fixture
async def scripted() -> AsyncIterator[Subject]:
    engine = ScriptedEngine(Script(tokens_per_s=200, chars=4000), Tokenizer.load(model_folder()))
    await engine.start()
    yield subject_of("scripted", engine)
    await engine.stop()


async def read(subject: Subject, generation: Generation) -> list[Step]:
    return [step async for step in subject.engine.generate(generation)]


async def until_stepping(subject: Subject) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not subject.engine.load().running:  # noqa: ASYNC110 - an engine's load has no event
            await asyncio.sleep(0.01)


def stop_the_core() -> list[psutil.Process]:
    """By a signal that it cannot refuse; returns the engine's processes."""
    [core] = spawned_by(psutil.Process())
    core.suspend()
    return [core, *core.children(recursive=True)]


async def is_found_out(subject: Subject, silence: Callable[[], Awaitable[None]]) -> None:
    """Busy it lives; then it is dead to all who read and to all who come."""
    deaths: asyncio.Queue[EngineDead] = asyncio.Queue()
    async with asyncio.timeout(PATIENCE_S), Watchdog(subject.engine, SILENCE_S, deaths.put_nowait):
        readers = [asyncio.create_task(read(subject, subject.long(f"run:{n}"))) for n in range(2)]
        await until_stepping(subject)
        assert deaths.empty()
        await silence()

        assert "made no step" in str(await deaths.get())
        for reader in readers:
            with pytest.raises(EngineDead):
                await reader
    with pytest.raises(EngineDead):
        subject.engine.check_health()
    with pytest.raises(EngineDead):
        await read(subject, subject.brief("late"))
    await subject.engine.stop()


async def test_a_scripted_engine_that_falls_silent_fails_every_reader(scripted: Subject) -> None:
    mute = scripted.tokenizer.encode_chat([Turn("user", '[[script {"failure": "engine_silent"}]]')])
    others: list[asyncio.Task[list[Step]]] = []

    async def silence() -> None:
        others.append(asyncio.create_task(read(scripted, Generation("mute", mute, 5, Sampling()))))

    await is_found_out(scripted, silence)
    with pytest.raises(EngineDead):
        await others[0]


@pytest.mark.vllm
@pytest.mark.asyncio(loop_scope="package")
async def test_a_real_engine_whose_core_is_stopped_fails_every_reader_and_leaves_no_process(
    small_engine: VllmEngine,
) -> None:
    """The last with that engine: it is of no use afterwards."""
    processes: list[psutil.Process] = []

    async def silence() -> None:
        processes.extend(stop_the_core())

    await is_found_out(subject_of("vllm", small_engine), silence)
    _, alive = psutil.wait_procs(processes, timeout=PATIENCE_S)
    assert all(map(is_gone, alive))
