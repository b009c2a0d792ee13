"""Readers whose connections are cut and come back at every moment end with the stored message, exactly."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest
from redis.asyncio import Redis

from inference.servers import asynchronous
from tests.long_form import times
from tests.sse_client import Api, Reading
from tests.stack.cutting import CALM, STRIKES_WITHIN_S, Fate, Reader, Told
from tests.stack.stack import Stack

READERS_A_RUN = 8
RUNS = times(63, long=250)
SCHEDULES = RUNS * READERS_A_RUN
RUNS_AT_ONCE = 48
# The last runs share a storm, in which one in five empties the streams' database under all the others.
STORMY_RUNS, FLUSH_EVERY = RUNS // 5, 5
# Beside the engine's own many scripts: sequences that fall apart into several code points, or into none on its own.
TEXTS = (
    "👩‍👩‍👧‍👦🏳️‍🌈👍🏽🇮🇷👨🏿‍🚒 wörter ",
    "素早い茶色の狐が、のろまな犬を飛び越える。敏捷的棕色狐狸跳过了懒狗。",
    "روباه قهوه‌ای چابک از روی سگ تنبل می‌پرد؛ «سلام دنیا»! ",
    "e\u0301a\u0308o\u0302\u0323 Z\u0351\u036b\u0343a\u0335lgo q\u0307\u0323 ",
    'data: {"a"}\n\nevent: done\r\n\u2028\u2029\\n\ttab ',
)
# How often each kind occurs at least.
AT_LEAST: dict[str, float] = {
    "while live": SCHEDULES / 2,
    "inside an event": SCHEDULES / 2,
    "before the answer": SCHEDULES / 20,
    "before the first id": SCHEDULES / 4,
    "twice in a row": SCHEDULES / 2,
    "from another web process": SCHEDULES / 2,
    "after the end": SCHEDULES,
    "with the stream gone": SCHEDULES / 10,
    **dict.fromkeys(CALM[1:], (RUNS - STORMY_RUNS) // len(CALM) // 2),
    Fate.FLUSHED: STORMY_RUNS // FLUSH_EVERY // 2,
}


@dataclass(frozen=True)
class Place:
    """Where the schedules play: web processes of one product, and the Redis of its streams."""

    webs: Sequence[Api]
    redis: Redis


@pytest.fixture
async def place(scripted_stack: Stack, webs: Sequence[Api]) -> AsyncIterator[Place]:
    async with asynchronous(scripted_stack.streams_url) as redis:
        yield Place(webs, redis)


async def test_every_schedule_of_cuts_reproduces_the_stored_message(
    place: Place, figures: Callable[[str], None]
) -> None:
    seed = int(os.environ.get("CUTS_SEED", random.randrange(1 << 32)))
    figures(f"schedules of cuts: CUTS_SEED={seed}")
    gate = asyncio.Semaphore(RUNS_AT_ONCE)
    began_at = time.monotonic()

    async def one(number: int) -> Counter[str]:
        async with gate:
            return await cut_and_compare(place, fate_of(number), f"{seed}/{number}")

    counts: Counter[str] = Counter()
    for counted in await asyncio.gather(*map(one, range(RUNS))):
        counts += counted
    figures(f"{SCHEDULES} schedules in {time.monotonic() - began_at:.0f} s: {dict(counts)}")

    assert {kind: counts[kind] for kind, least in AT_LEAST.items() if counts[kind] < least} == {}


def fate_of(number: int) -> Fate:
    """What befalls the run of this number."""
    if number < RUNS - STORMY_RUNS:
        return CALM[number % len(CALM)]
    return Fate.FLUSHED if number % FLUSH_EVERY == 0 else Fate.KEPT


async def cut_and_compare(place: Place, fate: Fate, seed: str) -> Counter[str]:
    """Ask once, read with several readers and as many schedules, and compare with what is stored."""
    dice = random.Random(seed)
    asked = await place.webs[0].ask(question(dice))
    told = Told(UUID(asked["run_id"]), fate, strikes_after_s=dice.random() * STRIKES_WITHIN_S)
    readers = [
        Reader(place.webs, told, asked["stream"], random.Random(f"{seed}/{reader}"), may_be_late=bool(reader))
        for reader in range(READERS_A_RUN)
    ]
    await asyncio.gather(told.suffer(place.redis), *(reader.read() for reader in readers))
    page = await place.webs[0].get(f"/api/chats/{asked['chat_id']}/messages")
    for reader in readers:
        assert_exact(reader.reading, page["results"][-1]["content"])
        assert await reader.read_again() == 204
    return told.counts


def assert_exact(reading: Reading, stored: str) -> None:
    """The reader has the stored message, its length and its digest."""
    assert reading.ended is not None
    assert reading.ended.name == "done", reading.ended
    assert reading.text == stored
    assert reading.ended.data["chars"] == len(stored)
    assert reading.ended.data["sha256"] == hashlib.sha256(stored.encode()).hexdigest()


def question(dice: random.Random) -> str:
    """A question whose answer the scripted engine is told, or makes up in many scripts."""
    wishes: dict[str, Any] = {"first_token_ms": dice.choice((0, 0, 300))}
    if dice.random() < 0.7:
        wishes["text"] = "".join(dice.choice(TEXTS) for _ in range(3))
    return f"{dice.random()} [[script {json.dumps(wishes)}]]"
