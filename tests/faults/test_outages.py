"""Broker, streams and Postgres away, refusing or silent: every address answers properly, and what runs goes on."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from uuid import UUID, uuid4

import psutil
import pytest
import pytest_asyncio

from tests.faults import asks
from tests.faults.asks import POSTGRES, STREAMS
from tests.faults.cast import ANSWERED, AT_ONCE, BROKER, PROMOTE, Cast
from tests.faults.checker import violations
from tests.faults.collecting import collected
from tests.faults.parts import Server
from tests.faults.records import Bounds, Violation
from tests.faults.world import Plan, World, new_folder, remove, running
from tests.stack.stack import MODEL

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(400)]

# Longer than a server is away: a silent database may store a question when it is back.
WISHES = {"SCRIPT_TOKENS_PER_S": "10", "UNBORN_S": "40"}
OUTAGE_S = 20.0
ALONE_S = 5.0  # before the other server goes as well
Away = Callable[[Server], AbstractAsyncContextManager[None]]


@asynccontextmanager
async def refusing(server: Server) -> AsyncIterator[None]:
    """Killed, and started again behind the block."""
    number = signal.SIGQUIT if server.name == POSTGRES else signal.SIGKILL
    async with server.down(number):
        yield
    await server.ready()


@asynccontextmanager
async def silent(server: Server) -> AsyncIterator[None]:
    """Stopped with all its processes: it takes connections, and says nothing."""
    minder = psutil.Process(server.pid)
    stopped: list[psutil.Process] = []
    try:
        # Again and again: one may have been about to start another.
        while fresh := [child for child in minder.children(recursive=True) if child not in stopped]:
            for child in fresh:
                child.suspend()
            stopped += fresh
        yield
    finally:
        for child in reversed(stopped):
            with contextlib.suppress(psutil.NoSuchProcess):
                child.resume()


KINDS = pytest.mark.parametrize("away", [refusing, silent])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cast() -> AsyncIterator[Cast]:
    """A worker, a web process and a reaper, and everybody has been served once."""
    folder = new_folder()
    try:
        async with running(Plan(workers=1, webs=1, reapers=1, wishes=WISHES), folder) as world:
            yield await warm(world)
    finally:
        remove(folder)


async def warm(world: World) -> Cast:
    """The cast of a world, who have asked for everything once."""
    keys = await asyncio.to_thread(world.users, 3)
    cast = Cast(world, f"pal_{uuid4()}", "", locked_out=keys[0], readers=keys[1:])
    signed_up = await cast.ask(asks.SIGN_UP, {"new name": "visitor"})
    cast.session = signed_up.headers["set-cookie"].split("sessionid=")[1].split(";")[0]
    await cast.fetch(PROMOTE, cast.key)
    cast.things["ended run"] = await cast.run(asks.SHORT)
    ended = await cast.api("GET", f"/api/runs/{cast.things['ended run']}")
    response = f"resp_{UUID(ended['id']).hex}"
    cast.things |= {"model": MODEL, "response": response}
    cast.things |= {"chat": ended["chat_id"], "message": ended["prompt_id"], "kept key": await cast.new_key()}
    await cast.ask_in_peace()
    return cast


async def test_the_tables_hold_every_address() -> None:
    assert asks.unasked() == set()


@KINDS
async def test_broker_and_streams_away(cast: Cast, away: Away, figures: Callable[[str], None]) -> None:
    (of_broker, of_both, of_streams), reading = await cast.begin(3)
    async with cast.listening() as heard, AsyncExitStack() as broker, AsyncExitStack() as streams:
        await broker.enter_async_context(away(cast.world.broker))
        back_at = time.monotonic() + OUTAGE_S
        await cast.ask_all(of_broker, BROKER)
        await until(back_at - OUTAGE_S + ALONE_S)
        await streams.enter_async_context(away(cast.world.streams))
        streams_back_at = time.monotonic() + OUTAGE_S
        await cast.ask_all(of_both, BROKER, STREAMS)
        await until(back_at)
        await broker.aclose()
        await cast.ask_all(of_streams, STREAMS)
        await until(streams_back_at)
        await streams.aclose()
        await heard.until("missed")
        answered = await cast.until(ANSWERED, [of_broker["chat to ask in"], of_broker["chat to ask in once"]])
        await reading
    await cast.settle()
    figures(cast.figures(away.__name__))
    figures(f"questions taken without the broker were answered {answered:.1f} s after both were back")
    await cast.assert_once(of_broker, of_both, of_streams)


@KINDS
async def test_postgres_away(cast: Cast, away: Away, figures: Callable[[str], None]) -> None:
    (of_postgres,), reading = await cast.begin(1)
    async with cast.listening(), cast.in_flight() as in_flight:
        async with away(cast.world.postgres):
            back_at = time.monotonic() + OUTAGE_S
            await cast.ask_all(of_postgres, POSTGRES)
            told = await in_flight
            assert cast.wrongs(told) == []
            await until(back_at)
        served = await cast.until_served()
        await reading
    await cast.settle()
    figures(cast.figures(away.__name__))
    figures(f"{away.__name__}: served {served:.1f} s after postgres was back")
    figures(f"a question in flight when postgres went {away.__name__}: {told.status} after {told.took_s:.1f} s")
    await cast.assert_once(of_postgres)


async def test_nothing_is_left_of_outages(cast: Cast, figures: Callable[[str], None]) -> None:
    await cast.ask_in_peace()
    records = await collected(cast.world, cast.seen, Bounds())

    figures("\n".join(f"connected: {counts}" for counts in cast.counts))
    found = [violation for violation in violations(records) if not is_known(violation, cast)]
    assert [(violation.invariant, violation.about, violation.what) for violation in found] == []
    for run_id in cast.cancelled:
        await cast.assert_whole(run_id)
    assert {read.ended_as for read in cast.seen.reads} == {"done"}
    assert {death.name for death in cast.world.deaths} <= {BROKER, STREAMS, POSTGRES}
    # Whoever asks at once may leave a connection in each of two pools; what is lost at each try would be hundreds.
    assert {what for what, count in cast.counts[-1].items() if count > cast.counts[1][what] + 2 * AT_ONCE} == set()


def is_known(violation: Violation, cast: Cast) -> bool:
    """Runs that are tried again share their question. The stream of one that was cancelled while streams were away may
    have its end, told by the reaper, before the last text: readers get that from the row.
    """
    is_of_stream = violation.what.startswith("the stream has")
    is_cancelled = violation.about.removeprefix("run ") in cast.cancelled
    return violation.invariant == "one run a key" or (is_of_stream and is_cancelled)


async def until(moment: float) -> None:
    """An outage takes its time."""
    await asyncio.sleep(max(0.0, moment - time.monotonic()))
