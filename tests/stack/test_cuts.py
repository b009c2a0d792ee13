"""Readers whose connections are cut and come back at every moment end with the stored message, exactly."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.sse_client import Api, Reading
from tests.stack.stack import Stack

SCHEDULES = 500
READERS_A_RUN = 4
RUNS_AT_ONCE = 48
# Beside the engine's own many scripts: sequences that fall apart into several code points, or into none on its own.
TEXTS = (
    "👩‍👩‍👧‍👦🏳️‍🌈👍🏽🇮🇷👨🏿‍🚒 wörter ",
    "素早い茶色の狐が、のろまな犬を飛び越える。敏捷的棕色狐狸跳过了懒狗。",
    "روباه قهوه‌ای چابک از روی سگ تنبل می‌پرد؛ «سلام دنیا»! ",
    "e\u0301a\u0308o\u0302\u0323 Z\u0351\u036b\u0343a\u0335lgo q\u0307\u0323 ",
    'data: {"a"}\n\nevent: done\r\n\u2028\u2029\\n\ttab ',
)


async def test_every_schedule_of_cuts_reproduces_the_stored_message(
    scripted_stack: Stack, figures: Callable[[str], None]
) -> None:
    seed = int(os.environ.get("CUTS_SEED", random.randrange(1 << 32)))
    figures(f"schedules of cuts: CUTS_SEED={seed}")
    gate = asyncio.Semaphore(RUNS_AT_ONCE)
    began_at = time.monotonic()

    async def one(number: int) -> Counter[str]:
        async with gate:
            return await cut_and_compare(scripted_stack.api, random.Random(f"{seed}/{number}"))

    counts: Counter[str] = Counter()
    for counted in await asyncio.gather(*(one(number) for number in range(SCHEDULES // READERS_A_RUN))):
        counts += counted
    figures(f"{SCHEDULES} schedules in {time.monotonic() - began_at:.0f} s: {dict(counts)}")

    assert counts["readers"] == SCHEDULES
    assert counts["while live"] > SCHEDULES
    assert counts["inside an event"] > SCHEDULES / 2
    assert counts["before the first byte"] > SCHEDULES / 10


async def cut_and_compare(api: Api, dice: random.Random) -> Counter[str]:
    """Ask once, read with several readers and as many schedules, and compare with what is stored."""
    asked = await api.ask(question(dice))
    readings = [Reading() for _ in range(READERS_A_RUN)]
    counts = await asyncio.gather(*(read_with_cuts(api, asked["stream"], reading, dice) for reading in readings))
    page = await api.get(f"/api/chats/{asked['chat_id']}/messages")
    stored = page["results"][-1]["content"]
    for reading in readings:
        assert reading.ended is not None
        assert reading.ended.name == "done", reading.ended
        assert reading.text == stored
        assert reading.ended.data["chars"] == len(stored)
        assert reading.ended.data["sha256"] == hashlib.sha256(stored.encode()).hexdigest()
        assert await api.read(asked["stream"], reading) == 204
    return sum(counts, Counter({"readers": len(readings)}))


def question(dice: random.Random) -> str:
    """A question whose answer the scripted engine is told, or makes up in many scripts."""
    wishes: dict[str, Any] = {"first_token_ms": dice.choice((0, 0, 300))}
    if dice.random() < 0.7:
        wishes["text"] = "".join(dice.choice(TEXTS) for _ in range(3))
    return f"{dice.random()} [[script {json.dumps(wishes)}]]"


async def read_with_cuts(api: Api, path: str, reading: Reading, dice: random.Random) -> Counter[str]:
    """Read to the end over connections that break after random numbers of bytes."""
    counts: Counter[str] = Counter()
    while reading.ended is None:
        cut = dice.choice((0, dice.randrange(1, 60), dice.randrange(1, 400), dice.randrange(1, 3000), None))
        was_at = len(reading.events)
        status = await api.read(path, reading, cut)
        assert status == 200
        counts["connections"] += 1
        counts["before the first byte"] += cut == 0
        counts["while live"] += reading.ended is None
        counts["inside an event"] += bool(cut) and reading.ended is None and len(reading.events) >= was_at
        if dice.random() < 0.3:
            await asyncio.sleep(dice.random() * 0.3)
    return counts
