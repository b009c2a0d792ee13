"""An engine that lives and says nothing any more is found out, and ended with all its processes."""

from __future__ import annotations

import asyncio

import psutil
import pytest

from inference.engine import EngineDead, Generation, Sampling, Step
from inference.tokens import Turn
from inference.watchdog import Watchdog
from tests.contract.engine_processes import is_gone, spawned_by
from tests.engine_under_test import Subject

# A step on a busy machine takes a second at most.
SILENCE_S = 8.0
PATIENCE_S = 60


async def read(subject: Subject, generation: Generation) -> list[Step]:
    return [step async for step in subject.engine.generate(generation)]


async def until_stepping(subject: Subject) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not subject.engine.load().running:  # noqa: ASYNC110 - an engine's load has no event
            await asyncio.sleep(0.01)


def silence(subject: Subject) -> list[psutil.Process]:
    """Stop the engine from saying anything; returns its processes."""
    [core] = spawned_by(psutil.Process())
    core.suspend()
    return [core, *core.children(recursive=True)]


@pytest.mark.asyncio(loop_scope="module")
async def test_a_busy_engine_goes_on_and_a_silent_one_fails_every_reader(subject: Subject) -> None:
    deaths: asyncio.Queue[EngineDead] = asyncio.Queue()
    async with asyncio.timeout(PATIENCE_S), Watchdog(subject.engine, SILENCE_S, deaths.put_nowait):
        readers = [asyncio.create_task(read(subject, subject.long(f"run:{n}"))) for n in range(2)]
        await until_stepping(subject)
        assert deaths.empty()
        processes: list[psutil.Process] = []
        if subject.name == "vllm":
            processes = silence(subject)
        else:
            ask = [Turn("user", '[[script {"failure": "engine_silent"}]]')]
            prompt = subject.tokenizer.encode_chat(ask)
            readers.append(asyncio.create_task(read(subject, Generation("mute", prompt, 5, Sampling()))))

        assert "made no step" in str(await deaths.get())
        for reader in readers:
            with pytest.raises(EngineDead):
                await reader
    with pytest.raises(EngineDead):
        subject.engine.check_health()
    with pytest.raises(EngineDead):
        await read(subject, subject.brief("late"))
    await subject.engine.stop()
    _, alive = psutil.wait_procs(processes, timeout=PATIENCE_S)
    assert all(map(is_gone, alive))
