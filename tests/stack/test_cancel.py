"""Cancel, at every moment: the reader is told at once, the engine is free, and nothing is left behind."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any
from uuid import UUID

import psycopg
import pytest
from redis.asyncio import Redis

from inference.streams import TERMINAL_SEQ, Ended, read_after
from tests.long_form import times
from tests.sse_client import Api
from tests.stack.gauge import Gauge, gauge_of
from tests.stack.lanes import Lane, Stopped, Way
from tests.stack.stack import SLOTS, Process, Stack, new_users
from tests.stack.stopping import (
    Reached,
    assert_stopped,
    being_read,
    running,
    spread,
    stop_and_watch,
    stop_queued,
    until,
)

CANCELS_A_PHASE = 50
# Cancels at random moments, their users, and the few slots left to them, since the others are taken for as long: many
# of their runs must wait, though the web processes are what limits how fast they come (with 20 one in a thousand did).
CANCELS, LANES, FREE_SLOTS = times(320, long=1000), 40, 3
# Pools of a web process grow as they are used, up to a limit: 16 connections to each Redis, 5 to Postgres.
POOLS = 2 * (16 + 16 + 5)
# Far longer than any test waits: what ends such an answer is the cancel.
ENDLESS = {"chars": 2000}
LATE = {"first_token_ms": 60_000}


@pytest.fixture
def gauge(scripted_stack: Stack) -> Iterator[Gauge]:
    with gauge_of(scripted_stack) as gauge:
        yield gauge


def question(script: Mapping[str, Any]) -> str:
    """A question whose answer takes as long as the script says."""
    return f"{random.random()} [[script {json.dumps(script)}]]"


async def test_queued_runs_are_stopped_at_once(
    scripted_stack: Stack, gauge: Gauge, figures: Callable[[str], None]
) -> None:
    api = scripted_stack.api
    async with running(api, gauge, [question(LATE) for _ in range(SLOTS)]):
        told_after_s = [await stop_queued(api, question(ENDLESS)) for _ in range(CANCELS_A_PHASE)]
        assert (await gauge.load()).running == SLOTS
    assert await gauge.queued() == set()
    figures(f"cancel while queued: readers told after {spread(told_after_s)}")


MOMENTS: Mapping[str, tuple[Mapping[str, Any], Reached]] = {
    "before the first token": (LATE, lambda reading: reading.last_id),
    "in mid-answer": (ENDLESS, lambda reading: len(reading.text) > 2),
}


@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_stopped_run_leaves_the_engine_at_once(
    scripted_stack: Stack, gauge: Gauge, figures: Callable[[str], None], moment: str
) -> None:
    script, is_reached = MOMENTS[moment]
    api = scripted_stack.api
    await gauge.settle()
    stops = [await stop_and_watch(api, gauge, question(script), is_reached) for _ in range(CANCELS_A_PHASE)]
    told, freed = zip(*stops, strict=True)
    figures(f"cancel {moment}: readers told after {spread(told)}, engine empty after {spread(freed)}")


async def test_cancels_at_random_moments_leave_nothing(
    scripted_stack: Stack,
    second_web: tuple[Process, int],
    webs: Sequence[Api],
    gauge: Gauge,
    figures: Callable[[str], None],
) -> None:
    await stop_many(scripted_stack, webs, LANES)  # pools fill
    await gauge.settle()
    before, tasks = await gauge.held(scripted_stack.web, second_web[0]), (await gauge.load()).loop_tasks

    began_at = time.monotonic()
    async with running(scripted_stack.api, gauge, [question(LATE) for _ in range(SLOTS - FREE_SLOTS)]):
        stopped = await stop_many(scripted_stack, webs, CANCELS)
    figures(f"{CANCELS} cancels in {time.monotonic() - began_at:.0f} s:")
    figures("\n".join(f"  {moment}" for moment in by_phase(stopped)))

    await gauge.reach(lambda load: load.is_idle and load.loop_tasks <= tasks)
    after = await gauge.held(scripted_stack.web, second_web[0])
    assert await gauge.queued() == set()
    assert after.subscriptions <= before.subscriptions  # a feed of an earlier test may have ended meanwhile
    assert after.open_files < before.open_files + POOLS
    assert_rows_agree(scripted_stack, stopped)
    await assert_one_end_each(scripted_stack, stopped)
    assert {"queued", "before the first token", "in mid-answer", "ended first"} <= {stop.phase for stop in stopped}


async def test_a_resumed_stream_is_stopped_from_another_client(webs: Sequence[Api]) -> None:
    mine, other = webs
    async with being_read(mine, question(ENDLESS), bytes_until_cut=400) as (run_id, reading, reader):
        await reader
        assert reading.ended is None
        resumed = asyncio.create_task(other.read(f"/api/runs/{run_id}/stream", reading))
        had = len(reading.text)
        await until(lambda: len(reading.text) > had)

        await mine.post(f"/api/runs/{run_id}/cancel", {})
        await resumed

    await assert_stopped(mine, run_id, reading)
    assert reading.text


async def stop_many(stack: Stack, webs: Sequence[Api], cancels: int) -> list[Stopped]:
    """Stop so many runs, of users beside each other: more than the engine has slots, so that some runs wait."""
    views = [[Api(web.door, key) for web in webs] for key in new_users(stack.database_url, LANES)]
    lanes = [Lane(view, random.Random()) for view in views]
    return list(itertools.chain(*await asyncio.gather(*(lane.run(cancels // LANES) for lane in lanes))))


def assert_rows_agree(stack: Stack, stopped: Sequence[Stopped]) -> None:
    """No run is live, and every reader has the status and the text that are stored; only deleted runs have no row."""
    with psycopg.connect(stack.database_url) as connection:
        rows = connection.execute(
            "SELECT run.id::text, status, coalesce(content, '') FROM chat_run run"
            " LEFT JOIN chat_message answer ON answer.id = run.answer_id WHERE run.id = ANY(%s)",
            [[stop.run_id for stop in stopped]],
        ).fetchall()
    stored = {run_id: (status, content) for run_id, status, content in rows}
    deleted = deleted_chats(stopped)
    for stop in stopped:
        if stop.chat_id in deleted:
            assert stop.run_id not in stored
        else:
            assert stop.reading.ended is not None
            assert stored[stop.run_id] == (stop.reading.ended.name, stop.reading.text)
            assert stop.reading.ended.name in {"done", "cancelled"}


async def assert_one_end_each(stack: Stack, stopped: Sequence[Stopped]) -> None:
    """Each stream has one terminal entry and nothing behind it, but for those that went with their chats."""
    deleted = deleted_chats(stopped)
    kept = [stop for stop in stopped if stop.chat_id not in deleted]
    async with Redis.from_url(stack.streams_url) as redis:
        for stop in kept:
            entries = await read_after(redis, UUID(stop.run_id), None)
            ends = [entry.id.seq for entry in entries if isinstance(entry.event, Ended)]
            assert ends == [TERMINAL_SEQ], stop
            assert entries[-1].id.seq == TERMINAL_SEQ


def deleted_chats(stopped: Sequence[Stopped]) -> Set[str]:
    """The chats that were deleted while a run was stopped in them."""
    return {stop.chat_id for stop in stopped if stop.way is Way.WITH_ITS_CHAT}


def by_phase(stopped: Sequence[Stopped]) -> list[str]:
    """Of each phase, how many were stopped there and when their readers were told."""
    counts = Counter(stop.phase for stop in stopped)
    return [
        f"{phase}: {count}, {spread([stop.told_after_s for stop in stopped if stop.phase == phase])}"
        for phase, count in counts.most_common()
    ]
