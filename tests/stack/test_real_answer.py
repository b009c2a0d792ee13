"""The whole product on the real engine: what a newcomer is promised."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil
import pytest

from bench import batching
from launcher.install import hardware
from launcher.workers import environments
from tests.contract.engine_processes import is_gone, spawned_by
from tests.long_form import times
from tests.sse_client import Api, Reading, TimedReading
from tests.stack.gauge import gauge_of
from tests.stack.stack import ROOT, Stack, new_users, worker_beside
from tests.stack.stopping import (
    Reached,
    running,
    seconds_to_first_word,
    spread,
    stop_and_watch,
    stop_queued,
)
from tests.stack.taking_over import (
    BROKER_FORGETS_S,
    ENOUGH_CHARS,
    TALE_TOKENS,
    TALES,
    answers,
    assert_hands_back,
    make_greedy,
    parting,
    prompt_ids,
    told_ids,
    until,
)

pytestmark = pytest.mark.vllm

ENGINE_SLOTS = 16
STOPS_A_MOMENT, STOPS_IN_PREFILL = times(6, long=14), times(3, long=8)
# A prompt that a CPU reads for a second or so, in a single step, and when in it the run is stopped.
LONG_WORDS, INTO_PREFILL_S = 80, 0.2
MOMENTS: Mapping[str, Reached] = {
    "before the first token": lambda reading: reading.last_id,
    "in mid-answer": lambda reading: len(reading.text) > 2,
}
# The CPU backend's, and the product's default.
CACHE_BLOCK_TOKENS, CACHED_TOKEN_PERCENT = 128, 25
SILENCE_S = 8.0  # a step on a busy machine takes a second at most
# What each page's example prints in the end.
EXAMPLES = {"README.md": "Paris", "docs/api.md": "(?s)event: delta.*event: done"}
CAPITAL = "What is the capital of France?"


def story() -> str:
    """A question with a long answer, another one each time."""
    return f"Tell me a very long story about the number {random.random()}."


def long_question() -> str:
    """One that takes the engine a while to read, and of which nothing is in its cache."""
    return " ".join(str(random.randrange(1000)) for _ in range(LONG_WORDS))


async def test_a_real_answer_streams_in_pieces_and_matches_its_digest(vllm_stack: Stack) -> None:
    api = vllm_stack.api
    asked = await api.ask(CAPITAL)
    reading = Reading()
    await api.read(asked["stream"], reading)

    assert reading.ended is not None
    assert reading.ended.name == "done"
    assert "Paris" in reading.text
    assert sum(event.name == "delta" for event in reading.events) > 1
    assert reading.ended.data["chars"] == len(reading.text)
    assert reading.ended.data["sha256"] == hashlib.sha256(reading.text.encode()).hexdigest()
    question, answer = (await api.get(f"/api/chats/{asked['chat_id']}/messages"))["results"]
    assert (question["content"], answer["content"]) == (CAPITAL, reading.text)


async def test_a_second_turn_is_prompted_with_the_first(vllm_stack: Stack) -> None:
    api = vllm_stack.api
    asked = await api.ask(CAPITAL)
    await api.read(asked["stream"], Reading())
    first = await api.get(f"/api/runs/{asked['run_id']}")
    again = await api.ask("And of Italy?", chat_id=asked["chat_id"])
    await api.read(again["stream"], Reading())
    second = await api.get(f"/api/runs/{again['run_id']}")

    assert second["status"] == "done"
    assert second["input_tokens"] > first["input_tokens"] + first["output_tokens"]


async def test_a_second_turn_is_charged_less_for_what_the_engine_had_in_its_cache(
    vllm_stack: Stack, figures: Callable[[str], None]
) -> None:
    [key] = new_users(vllm_stack.database_url, 1)  # whose day has no other runs in it
    api = Api(vllm_stack.port, key)
    asked = await api.ask(long_question(), max_output_tokens=4)
    await api.read(asked["stream"], Reading())
    again = await api.ask("And then?", chat_id=asked["chat_id"], max_output_tokens=4)
    reading = Reading()
    await api.read(again["stream"], reading)

    assert reading.ended is not None
    usage = reading.ended.data["usage"]
    full = usage["input_tokens"] + usage["output_tokens"]
    assert usage["cached_tokens"] >= CACHE_BLOCK_TOKENS
    assert usage["charged_tokens"] == full - usage["cached_tokens"] * (100 - CACHED_TOKEN_PERCENT) // 100
    first = await api.get(f"/api/runs/{asked['run_id']}")
    assert first["cached_tokens"] == 0
    assert first["charged_tokens"] == first["input_tokens"] + first["output_tokens"]
    today = (await api.get("/api/usage"))["today"]["total"]
    assert today["cached_tokens"] == usage["cached_tokens"]
    assert today["charged_tokens"] == first["charged_tokens"] + usage["charged_tokens"]
    figures(f"a second turn, real engine: {usage}, {full} without the cache")


async def test_eight_questions_at_once_run_in_one_batch(vllm_stack: Stack, figures: Callable[[str], None]) -> None:
    measured = await batching.measure(vllm_stack.api, output_tokens=8)
    engine = await batching.engine_report(vllm_stack.broker_url)

    figures(f"{batching.QUESTIONS} questions: {measured}; the engine: {engine}")
    assert engine["peak_running"] >= batching.QUESTIONS


@pytest.mark.parametrize(("page", "last_words"), EXAMPLES.items())
def test_the_examples_of_the_documentation_work(vllm_stack: Stack, page: str, last_words: str) -> None:
    script = (ROOT / page).read_text().split("<!-- run by tests/stack/test_real_answer.py -->\n```bash\n")[1]
    environ = {"PALAVER_URL": f"http://127.0.0.1:{vllm_stack.port}", "DATABASE_URL": vllm_stack.database_url}
    ran = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script.split("```")[0]],
        cwd=ROOT,
        env=os.environ | environ | {"SECRET_KEY": "of-no-matter-here"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert ran.returncode == 0, ran.stderr
    assert re.search(last_words, ran.stdout)


async def test_queued_runs_of_a_busy_engine_are_stopped(vllm_stack: Stack, figures: Callable[[str], None]) -> None:
    api = vllm_stack.api
    with gauge_of(vllm_stack) as gauge:
        async with running(api, gauge, [story() for _ in range(ENGINE_SLOTS)]):
            told = [await stop_queued(api, story()) for _ in range(STOPS_A_MOMENT)]
        assert await gauge.queued() == set()

    figures(f"cancel while queued, real engine: readers told after {spread(told)}")


@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_stopped_run_leaves_the_real_engine(
    vllm_stack: Stack, figures: Callable[[str], None], moment: str
) -> None:
    api, is_reached = vllm_stack.api, MOMENTS[moment]
    with gauge_of(vllm_stack) as gauge:
        stops = [await stop_and_watch(api, gauge, story(), is_reached) for _ in range(STOPS_A_MOMENT)]

    told, freed = zip(*stops, strict=True)
    figures(f"cancel {moment}, real engine: readers told after {spread(told)}, empty after {spread(freed)}")


async def test_a_prompt_that_is_stopped_while_it_is_read_holds_nobody_up(
    vllm_stack: Stack, figures: Callable[[str], None]
) -> None:
    """The engine's load is that of its last step, and the one that reads the prompt is long: the next run tells."""
    api, is_reached = vllm_stack.api, MOMENTS["before the first token"]
    told, next_word = [], []
    with gauge_of(vllm_stack) as gauge:
        for _ in range(STOPS_IN_PREFILL):
            told += [(await stop_and_watch(api, gauge, long_question(), is_reached, INTO_PREFILL_S))[0]]
            next_word += [await seconds_to_first_word(api, story())]

    figures(f"cancel in prefill, real engine: readers told after {spread(told)}, next one's word {spread(next_word)}")


async def test_another_worker_goes_on_where_one_was_killed_and_hands_back_when_its_engine_is_stopped(
    vllm_stack: Stack, figures: Callable[[str], None], tmp_path: Path
) -> None:
    """The last test here: it ends the stack's worker."""
    stack, notes = vllm_stack, tmp_path / "notes"
    make_greedy(stack)
    undisturbed = [reading.text for reading in await answers(stack.api)]
    family = psutil.Process(stack.worker.pid).children(recursive=True)
    assert spawned_by(psutil.Process(stack.worker.pid))
    of_its_own = {"ENGINE_NOTES": str(notes), "ENGINE_SILENCE_S": str(SILENCE_S)}
    wishes = {**environments(2, hardware(), tmp_path)[1], **of_its_own}
    with worker_beside(stack, tmp_path, "tests.stack.noting_worker", wishes) as other:
        other.popen.send_signal(signal.SIGSTOP)
        await asyncio.sleep(BROKER_FORGETS_S)
        readings = [TimedReading() for _ in TALES]
        reading_all = asyncio.create_task(answers(stack.api, readings))
        await until(lambda: all(len(reading.text) > ENOUGH_CHARS for reading in readings))
        other.popen.send_signal(signal.SIGCONT)
        stack.worker.popen.kill()
        killed_at = time.monotonic()
        await reading_all
        await assert_hands_back(stack, other)

    _, alive = psutil.wait_procs(family, timeout=10)
    assert all(map(is_gone, alive))
    assert {reading.attempts for reading in readings} == {2}
    assert not [event for reading in readings for event in reading.events if event.name == "reset"]
    pauses = [reading.began_at[2] - killed_at for reading in readings]
    different = [trio for trio in zip(TALES, readings, undisturbed, strict=True) if trio[1].text != trio[2]]
    figures(f"kill -9 of a real worker: the next word after {spread(pauses)};")
    figures(f"  {len(TALES) - len(different)} of {len(TALES)} whole answers equal the undisturbed ones")
    for trio in different:
        figures(await parting(stack, *trio))
    assert len(different) <= 1
    requests = {request["id"]: request for request in map(json.loads, notes.read_text().splitlines())}
    for tale, reading in zip(TALES, readings, strict=True):
        emitted = await told_ids(stack, reading.run_id, attempts=1)
        request = requests[f"{reading.run_id}:2"]
        assert emitted
        assert request["prompt_ids"] == [*prompt_ids(tale), *emitted]
        assert request["cap"] == TALE_TOKENS - len(emitted)
