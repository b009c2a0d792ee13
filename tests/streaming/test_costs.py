"""What a token costs the web tier, and what an open stream holds: counted, since times depend on the machine."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
import uvicorn
from django.conf import settings
from hiredis import Reader
from redis.asyncio import Redis

from chat.streaming import frames
from chat.streaming.connect import PackingConnection
from chat.streaming.follower import Follower
from chat.streaming.hub import Arrived, Hub, Live, Subscription, Wait
from chat.streaming.place import Place
from chatsite.asgi import Application
from chatsite.serve import COLLECT_AFTER, Server
from inference.streams import Delta, Entry, EntryId
from tests.metering import metered
from tests.streaming.telling import Telling, Web, add, until

RUNS, VIEWERS, ENTRIES = 20, 3, 4
CLIENTS = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[Place]:
    """The place of each frame that was encoded."""
    places: list[Place] = []
    encode = frames.frame

    def noting(place: Place, event: Any) -> bytes:
        places.append(place)
        return encode(place, event)

    monkeypatch.setattr(frames, "frame", noting)
    return places


async def say(redis: Redis, lives: Sequence[Live], seqs: Sequence[int]) -> None:
    """The same deltas to all of the runs, at one moment."""
    async with redis.pipeline(transaction=True) as pipe:
        for live in lives:
            for seq in seqs:
                await add(pipe, live.run_id, EntryId(1, seq), Delta("x", seq - 1))
        await pipe.execute()


async def positions(waiting: Sequence[Live]) -> Mapping[UUID, Wait]:
    """Nobody waits."""
    return {live.run_id: Wait() for live in waiting}


def a_run() -> Live:
    return Live(uuid4(), "m", "free")


async def test_what_all_runs_say_at_one_moment_is_read_once_for_all_their_viewers(
    hub: Hub, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    lives = [a_run() for _ in range(RUNS)]
    viewers = [await hub.join(live, None) for live in lives for _ in range(VIEWERS)]
    await say(redis, lives, [1])
    await heard(viewers, 1)
    await until(lambda: hub._is_blocked)
    before = hub.reads

    with metered(monkeypatch) as costs:
        await say(redis, lives, range(2, 2 + ENTRIES))
        await heard(viewers, ENTRIES)
        await until(lambda: hub._is_blocked)

    assert hub.reads - before == 1
    # One more, which waits for what comes next.
    assert [command for command in costs.commands if command not in ("MULTI", "EXEC", "XADD")] == ["XREAD"]


async def heard(viewers: Sequence[Subscription], entries: int) -> None:
    """Return when each has been handed so many entries. All at once: a viewer is told of them by one note."""
    for viewer in viewers:
        note = await asyncio.wait_for(viewer.next(), 5)
        assert isinstance(note, Arrived)
        assert len(note.entries) == entries
        assert viewer.is_empty


async def test_an_entry_is_encoded_once_for_all_viewers_and_what_comes_together_is_sent_together(
    redis: Redis, encoded: list[Place]
) -> None:
    hub, live = Hub(redis), a_run()
    told = [Follower(redis, hub, positions, live, Place()).events((), is_live=True) for _ in range(VIEWERS)]
    for viewer in told:
        await anext(viewer)  # that it waits
    entries = [Entry(EntryId(1, seq), Delta("x", seq - 1)) for seq in range(1, ENTRIES + 1)]

    hub.tell(live.run_id, Arrived(tuple(entries[:2])))
    hub.tell(live.run_id, Arrived(tuple(entries[2:])))
    pieces = [await anext(viewer) for viewer in told]

    assert len(encoded) == ENTRIES
    assert {piece.count(b"event: delta\n") for piece in pieces} == {ENTRIES}
    assert len(set(pieces)) == 1
    for viewer in told:
        await viewer.aclose()


async def test_who_is_at_another_place_is_told_what_they_lack(redis: Redis, encoded: list[Place]) -> None:
    hub, live = Hub(redis), a_run()
    places = [Place(EntryId(1, 1), 1), Place(EntryId(1, 2), 2), Place(EntryId(1, 1), 1)]
    told = [Follower(redis, hub, positions, live, place).events((), is_live=True) for place in places]
    waiting = [asyncio.create_task(anext(viewer)) for viewer in told]
    await until(lambda: sum(len(followed.readers) for followed in hub._followed.values()) == len(told))

    hub.tell(live.run_id, Arrived(tuple(Entry(EntryId(1, seq), Delta("x", seq - 1)) for seq in (2, 3))))

    pieces = await asyncio.gather(*waiting)
    assert [piece.count(b"event: delta\n") for piece in pieces] == [2, 1, 2]
    for viewer in told:
        await viewer.aclose()


async def test_the_frames_of_one_wake_up_reach_the_socket_in_one_write(
    web: Web, telling: Telling, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces: list[bytes] = []
    stream = Application._go_on

    async def noting_stream(self: Application, response: Any, send: Callable[[Any], Any]) -> None:
        async def noting(message: Mapping[str, Any]) -> None:
            pieces.append(message.get("body", b""))
            await send(message)

        await stream(self, response, noting)

    monkeypatch.setattr(Application, "_go_on", noting_stream)
    await telling.start()
    async with web.api.stream(telling.path):
        await until(lambda: web.readers)
        await until(lambda: b"event: started" in b"".join(pieces))
        del pieces[:]
        await say(telling.redis, [Live(telling.run.pk, "m", "free")], range(1, 1 + ENTRIES))
        await until(lambda: b"".join(pieces).count(b"event: delta") == ENTRIES)

    assert len(pieces) == 1


async def test_an_open_stream_holds_three_tasks_and_neither_a_thread_nor_a_connection(
    web: Web, tellings: Sequence[Telling], database_url: str
) -> None:
    for telling in tellings:
        await telling.start()
    async with AsyncExitStack() as first, AsyncExitStack() as rest:
        await open_all(first, web, tellings[:4])
        few = await held(web, database_url)
        await open_all(rest, web, tellings[4:])
        many = await held(web, database_url)

    more = {name: many[name] - few[name] for name in many}
    # That of uvicorn, that which sends, and that which hears that the client has left.
    assert more["tasks"] == 3 * len(tellings[4:])
    # The thread that has answered one may not have sat down yet when the next is asked for: then there are two.
    assert more["threads"] <= 1
    assert (more["connections to Redis"], more["connections to PostgreSQL"]) == (0, 0)


@pytest.fixture
def tellings(new_telling: Callable[[], Telling]) -> Sequence[Telling]:
    return [new_telling() for _ in range(12)]


@pytest.fixture
def database_url() -> str:
    """As psycopg wants it."""
    database = settings.DATABASES["default"]
    parts = {"host": "HOST", "port": "PORT", "dbname": "NAME", "user": "USER", "password": "PASSWORD"}
    return " ".join(f"{name}='{database[key]}'" for name, key in parts.items())


async def open_all(stack: AsyncExitStack, web: Web, tellings: Sequence[Telling]) -> None:
    """One after the other, so that a thread which has answered is there for the next."""
    for number, telling in enumerate(tellings, start=web.readers + 1):
        await stack.enter_async_context(opened(web, telling))
        await until(partial(has_readers, web, number))


def has_readers(web: Web, number: int) -> bool:
    return web.readers == number


@asynccontextmanager
async def opened(web: Web, telling: Telling) -> AsyncIterator[None]:
    async with web.api.stream(telling.path) as answer:
        assert answer.status == 200
        yield


async def held(web: Web, database_url: str) -> dict[str, int]:
    """What this process holds now."""
    assert web.application._streams
    redis = web.application._streams.redis
    with psycopg.connect(database_url) as database:
        clients = database.execute(CLIENTS).fetchall()[0][0]
    return {
        "tasks": len(asyncio.all_tasks()),
        "threads": threading.active_count(),
        "connections to Redis": len(await redis.client_list()),
        "connections to PostgreSQL": clients,
    }


async def test_commands_are_packed_and_replies_are_parsed_in_c(reading: Redis) -> None:
    await reading.ping()
    pool: Any = reading.connection_pool
    connection = await pool.get_connection()
    assert isinstance(connection, PackingConnection)
    parser: Any = connection._parser
    assert isinstance(parser._reader, Reader)
    await pool.release(connection)


async def test_a_process_that_serves_leaves_what_it_began_with_to_no_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    async def began(_server: object, sockets: object) -> None:
        pass

    before = gc.get_threshold()
    monkeypatch.setattr(uvicorn.Server, "startup", began)
    try:
        await Server(uvicorn.Config(Application()), Application()).startup([])
        assert gc.get_freeze_count() > 0
        assert gc.get_threshold() == COLLECT_AFTER
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)
