"""Answers of the real engine, read while their worker is killed, or its engine stopped."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from uuid import UUID

import psutil
import psycopg
from redis import Redis as BlockingRedis
from redis.asyncio import Redis

from chat.emitted import Emitted
from inference.streams import read_rest
from inference.tokens import Decoder, Tokenizer, Turn
from scheduler.room import queue_name
from tests.contract.engine_processes import is_gone, spawned_by
from tests.long_form import times
from tests.real_model import model_folder
from tests.sse_client import Api, Reading, TimedReading
from tests.stack.stack import MODEL, Process, Stack

TOPICS = ("rivers", "bread", "the moon", "horses", "glass", "chess", "salt", "bridges", "wool", "islands")
TALES = tuple(f"Tell me a long tale about {topic}." for topic in TOPICS[: times(4, long=10)])
TALE_TOKENS = times(48, long=80)
ENOUGH_CHARS = 30
# A stopped process still has a blocking read at the broker, which a message would be lost to.
BROKER_FORGETS_S = 3.0
PATIENCE_S = 120

# How far apart the model's two best next tokens are behind ids, as json in argv.
GAP = """
import json, sys, torch, transformers
model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32)
with torch.no_grad():
    best = model(torch.tensor([json.loads(sys.argv[2])])).logits[0, -1].topk(2).values
print(float(best[0] - best[1]))
"""


async def answers(api: Api, readings: Sequence[TimedReading] | None = None) -> Sequence[TimedReading]:
    """Ask for all tales at once, and read them to their ends."""
    read = readings or [TimedReading() for _ in TALES]
    await asyncio.gather(*(_answer(api, *pair) for pair in zip(TALES, read, strict=True)))
    return read


async def _answer(api: Api, tale: str, reading: TimedReading) -> None:
    asked = await api.ask(tale, max_output_tokens=TALE_TOKENS)
    reading.run_id = asked["run_id"]
    await api.read(asked["stream"], reading)
    assert reading.ended is not None
    assert reading.ended.name == "done"


async def assert_hands_back(stack: Stack, worker: Process) -> None:
    """Its EngineCore is stopped in mid-answer: the worker ends, leaves no process, and the run waits for another."""
    asked = await stack.api.ask(TALES[0], max_output_tokens=500)
    reading = Reading()
    reader = asyncio.create_task(stack.api.read(asked["stream"], reading))
    await until(lambda: bool(reading.text))
    family = psutil.Process(worker.pid).children(recursive=True)
    [core] = spawned_by(psutil.Process(worker.pid))
    core.suspend()

    assert await asyncio.to_thread(worker.popen.wait, PATIENCE_S) == 1, worker.tail()
    reader.cancel()
    _, alive = await asyncio.to_thread(psutil.wait_procs, family, timeout=10)
    assert all(map(is_gone, alive))
    with BlockingRedis.from_url(stack.broker_url) as broker:
        assert asked["run_id"] in str(broker.lrange(queue_name(MODEL, asked_tier(stack, asked["run_id"])), 0, -1))
        assert asked["run_id"] not in str(broker.hvals("unacked"))


def asked_tier(stack: Stack, run_id: str) -> str:
    """In which a run was asked."""
    with psycopg.connect(stack.database_url) as database:
        [tier] = database.execute("SELECT tier_id FROM chat_run WHERE id = %s", [run_id]).fetchone() or [""]
    return str(tier)


async def until(condition: Callable[[], bool]) -> None:
    """Return once it comes true. Raises `TimeoutError`."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110  (what it asks for has no event)
            await asyncio.sleep(0.02)


def prompt_ids(tale: str) -> list[int]:
    """What a model is asked by a chat's first question."""
    return Tokenizer.load(model_folder()).encode_chat([Turn("user", tale)])


async def told_ids(stack: Stack, run_id: str, attempts: int) -> list[int]:
    """The ids that the stream holds of a run's first attempts."""
    async with Redis.from_url(stack.streams_url) as redis:
        entries = await read_rest(redis, UUID(run_id))
    return list(Emitted.in_stream([entry for entry in entries if entry.id.attempt <= attempts], {}).token_ids)


def make_greedy(stack: Stack) -> None:
    """From here on the same question has the same answer, but for what batching does to sums."""
    with psycopg.connect(stack.database_url) as database:
        database.execute("UPDATE scheduler_model SET temperature = 0")


async def parting(stack: Stack, tale: str, reading: TimedReading, undisturbed: str) -> str:
    """Where two answers part, and how close the call was there."""
    ids = await told_ids(stack, reading.run_id, attempts=2)
    decoder = Decoder(Tokenizer.load(model_folder()))
    text, shared = "", 0
    while undisturbed.startswith(text):
        text += decoder.push([ids[shared]])
        shared += 1
    asked = json.dumps([*prompt_ids(tale), *ids[: shared - 1]])
    command = [sys.executable, "-W", "ignore", "-c", GAP, str(model_folder()), asked]
    gap = await asyncio.to_thread(subprocess.check_output, command, text=True, stderr=subprocess.DEVNULL)
    return f"  {tale!r} parts with token {shared}; gap between the two best logits there: {float(gap):.6f}"
