"""Processes that die at exact points: the run is done all the same, its reader has one continuous answer, and its user
pays once.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
import pytest_asyncio

from tests.faults.accounts import UNITS, GivenBack, Held
from tests.faults.checker import violations
from tests.faults.client import Client
from tests.faults.collecting import collected
from tests.faults.crowd import Seen, Stop, User, Wish
from tests.faults.mortal import ORDER, POINTS, RESERVED
from tests.faults.records import Bounds, Records
from tests.faults.world import Plan, World, new_folder, remove, running

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]

# So that nobody waits long for what a dead worker held.
WISHES = {"LEASE_S": "4", "REAPER_PERIOD_S": "0.5", "SCRIPT_TOKENS_PER_S": "50", "UNBORN_S": "5"}
MORTAL = ("tests.faults.mortal",)
UNDER_LOAD = "a message is pulled and noted nowhere"
LOAD = 6
OBEYED_WITHIN_S = 30
A_WISH = Wish(
    text="", chars=200, stop=Stop.NEVER, stop_after_s=0, double=False, second_reader=False, goes_on=False, is_cut=False,
    seed=0,
)  # fmt: skip


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[World]:
    """A worker, a web process, and a reaper that works fast; the first two die when ordered to."""
    folder = new_folder()
    plan = Plan(workers=1, webs=1, reapers=1, wishes=WISHES | {ORDER: str(order_of(folder))}, through=MORTAL)
    try:
        async with running(plan, folder) as started:
            yield started
    finally:
        remove(folder)


@pytest.mark.parametrize("point", POINTS)
async def test_a_death_costs_readers_nothing_but_time(world: World, point: str) -> None:
    await world.whole()
    order_of(world.folder).write_text(point)

    seen = await read_through(world, point, LOAD if point == UNDER_LOAD else 1)

    await obeyed(order_of(world.folder))
    await assert_nothing_was_lost(world, seen)


async def test_a_question_whose_web_process_died_before_it_was_stored_costs_nothing(world: World) -> None:
    await world.whole()
    client = await new_client(world)
    chat = await client.call("open", "POST", "/api/chats", {})
    order_of(world.folder).write_text(RESERVED)

    # Without a key it is a question anew when it is sent again, to the next process.
    asked = await client.call("ask", "POST", f"/api/chats/{chat.body['id']}/messages", {"content": "Hi [[script {}]]"})

    assert asked.is_served
    await obeyed(order_of(world.folder))
    records = await collected(world, Seen(), Bounds())
    assert violations(records) == []
    unborn = [held for held in reserved(records) if held.run_id not in records.accounts.last_bills]
    assert len(unborn) == 1
    assert GivenBack(unborn[0].user_id, unborn[0].run_id, unborn[0].tokens * UNITS) in records.accounts.operations


async def test_a_run_that_is_stopped_while_the_streams_are_away_is_settled_when_they_are_back(world: World) -> None:
    await world.whole()
    client = await new_client(world)
    chat = (await client.call("open", "POST", "/api/chats", {})).body["id"]

    async with world.workers[0].down(signal.SIGKILL):
        asked = await client.call("ask", "POST", f"/api/chats/{chat}/messages", {"content": "Hi"})
        async with world.streams.down(signal.SIGTERM):
            stopped = await client.call("cancel", "POST", f"/api/runs/{asked.body['run_id']}/cancel", {})

    assert stopped.is_served
    await world.whole()
    records = await collected(world, Seen(), Bounds())
    assert violations(records) == []
    run_id = UUID(asked.body["run_id"])
    [held] = [held for held in reserved(records) if held.run_id == run_id]
    assert GivenBack(held.user_id, run_id, held.tokens * UNITS) in records.accounts.operations


async def new_client(world: World) -> Client:
    """Of a user of his own."""
    [key] = await asyncio.to_thread(world.users, 1)
    return Client(world.ports, key, random.Random(key), [])


def reserved(records: Records) -> Sequence[Held]:
    """All that ever was."""
    return [operation for operation in records.accounts.operations if isinstance(operation, Held)]


def order_of(folder: Path) -> Path:
    """The file that says who is to die."""
    return folder / "order"


async def obeyed(order: Path) -> None:
    """Return when the order has been carried out, which may be behind what readers see. Raises `TimeoutError`."""
    async with asyncio.timeout(OBEYED_WITHIN_S):
        while order.exists():  # noqa: ASYNC110, ASYNC240  (nobody to wake us)
            await asyncio.sleep(0.05)


async def read_through(world: World, point: str, questions: int) -> Seen:
    """Ask so many at once, and read each to its end over a connection that nobody cuts on purpose."""
    seen = Seen()
    users = [
        User(number, Client(world.ports, key, random.Random(number), seen.requests), seen)
        for number, key in enumerate(await asyncio.to_thread(world.users, questions))
    ]
    await asyncio.gather(*(user.ask_and_read(wish) for user, wish in zip(users, wishes(point, users), strict=True)))
    return seen


def wishes(point: str, users: Sequence[User]) -> Sequence[Wish]:
    """A question each, unlike any other."""
    dice = random.Random(point)
    texts = [f'{point} {number} [[script {{"chars": 200, "split_characters": true}}]]' for number in range(len(users))]
    return [replace(A_WISH, text=text, seed=dice.randrange(1 << 32)) for text in texts]


async def assert_nothing_was_lost(world: World, seen: Seen) -> None:
    """Every run is done, and its reader was told all of it, and its end once."""
    records = await collected(world, seen, Bounds())
    asked = {asked.run_id for asked in seen.asked}
    assert violations(records) == []
    assert [row.status for row in records.rows if row.id in asked] == ["done"] * len(asked)
    assert len(seen.reads) == len(asked) > 0
    assert {read.ended_as for read in seen.reads} == {"done"}
