"""What the faults are made with does what it says: clocks that are off, replies that are lost, dice that repeat."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
from collections.abc import Mapping
from uuid import uuid4

import pytest
from django.conf import settings
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as ConnectionLost

from tests.faults.client import Answered, judged
from tests.faults.faults import FAULTS, schedule
from tests.faults.proxy import Proxy
from tests.faults.records import Verdict
from tests.stack.stack import ROOT

PROBLEM = {"content-type": "application/problem+json"}
TELL_TIMES = """
import datetime, time
from tests.faults.skewed import set_clocks
before, then = time.time(), datetime.datetime.now(datetime.UTC)
set_clocks(-60)
now = datetime.datetime.now(datetime.UTC)
print(round((time.time() - before) / 60), round((now - then).total_seconds() / 60), isinstance(now, datetime.datetime))
"""


def test_a_process_with_another_clock_takes_the_present_to_be_another() -> None:
    told = subprocess.run([sys.executable, "-c", TELL_TIMES], cwd=ROOT, capture_output=True, text=True, check=True)

    assert told.stdout.split() == ["-1", "-1", "True"]


async def test_a_lost_replys_command_ran_and_its_sender_is_not_told() -> None:
    key = f"lost:{uuid4()}"
    async with Proxy(settings.STREAMS_URL).listening() as wire:
        redis = Redis.from_url(wire.url, retry=Retry(NoBackoff(), retries=0))
        assert await redis.incr(key) == 1
        losing = asyncio.create_task(wire.lose_reply(b"INCR", within_s=10))
        await asyncio.sleep(0)

        with pytest.raises(ConnectionLost):
            await redis.incr(key)

        assert await losing
        assert await redis.get(key) == b"2"
        await redis.delete(key)
        await redis.aclose()


@pytest.mark.parametrize(
    ("what", "status", "headers", "code", "verdict"),
    [
        ("ask", 429, PROBLEM | {"retry-after": "7"}, "budget_exhausted", Verdict.REFUSED),
        ("ask", 503, PROBLEM | {"retry-after": "5"}, "queue_full", Verdict.REFUSED),
        ("ask", 400, PROBLEM, "prompt_exceeds_budget", Verdict.REFUSED),
        ("ask", 409, PROBLEM, "chat_busy", Verdict.REFUSED),
        ("delete", 404, PROBLEM, "not_found", Verdict.SERVED),
        ("ask", 404, PROBLEM, "not_found", Verdict.WRONG),
        ("ask", 429, PROBLEM, "budget_exhausted", Verdict.WRONG),
        ("ask", 503, PROBLEM | {"retry-after": "soon"}, "queue_full", Verdict.WRONG),
        ("ask", 503, {"retry-after": "5"}, "queue_full", Verdict.WRONG),
        ("ask", 500, PROBLEM | {"retry-after": "5"}, "internal_error", Verdict.WRONG),
    ],
)
def test_a_refusal_is_proper_that_says_why_and_for_how_long(
    what: str, status: int, headers: Mapping[str, str], code: str, verdict: Verdict
) -> None:
    assert judged(what, Answered(status, headers, {"code": code}))[0] is verdict


def test_the_seed_alone_decides_what_befalls_a_world() -> None:
    def drawn(seed: int) -> list[tuple[float, str, str]]:
        return [(blow.at_s, blow.fault.name, blow.seed) for blow in schedule(seed, 300)]

    assert drawn(7) == drawn(7)
    assert drawn(7) != drawn(8)


def test_every_kind_of_fault_is_drawn_before_one_comes_again() -> None:
    first = itertools.islice(schedule(7, 3600), len(FAULTS))

    assert {blow.fault.name for blow in first} == {fault.name for fault in FAULTS}
