"""The whole product on the real engine: what a newcomer is promised."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Callable

import psutil
import pytest

from bench import batching
from tests.sse_client import Reading
from tests.stack.stack import ROOT, Stack

pytestmark = pytest.mark.vllm

CAPITAL = "What is the capital of France?"


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


async def test_eight_questions_at_once_run_in_one_batch(vllm_stack: Stack, figures: Callable[[str], None]) -> None:
    measured = await batching.measure(vllm_stack.api)
    engine = await batching.engine_report(vllm_stack.broker_url)

    figures(f"{batching.QUESTIONS} questions: {measured}; the engine: {engine}")
    assert engine["peak_running"] >= batching.QUESTIONS


def test_the_four_calls_of_the_readme_work(vllm_stack: Stack) -> None:
    readme = (ROOT / "README.md").read_text()
    script = readme.split("<!-- run by tests/stack/test_real_answer.py -->\n```bash\n")[1].split("```")[0]
    environ = os.environ | {"PALAVER": f"http://127.0.0.1:{vllm_stack.port}", "DATABASE_URL": vllm_stack.database_url}
    ran = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=ROOT,
        env=environ | {"SECRET_KEY": "of-no-matter-here"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert ran.returncode == 0, ran.stderr
    assert "event: delta" in ran.stdout
    assert ran.stdout.rstrip().rsplit("event: ", 1)[1].startswith("done")


def test_kill_9_of_the_worker_leaves_nothing_of_its_engine(vllm_stack: Stack) -> None:
    """The last test here: it ends the stack's worker."""
    family = psutil.Process(vllm_stack.worker.pid).children(recursive=True)
    assert len(family) >= 2, "EngineCore and its worker"
    vllm_stack.worker.popen.kill()

    _, alive = psutil.wait_procs(family, timeout=10)
    assert [process for process in alive if process.status() != psutil.STATUS_ZOMBIE] == []
