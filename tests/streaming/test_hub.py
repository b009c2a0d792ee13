"""The hub: one reader for many streams, through lost connections, slow readers and outages."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection
from typing import NoReturn
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import pytest
from django.conf import settings
from redis.asyncio import Redis

from chat.streaming import hub as hub_module
from chat.streaming import inbox
from chat.streaming.connect import streams_client
from chat.streaming.hub import Arrived, Hub, Live, Moved, PutBy, RowEnded, Subscription, Wait
from chat.streaming.inbox import Dropped
from chat.streaming.watch import Watch
from chat.streaming.written import Written
from inference.streams import Delta, EntryId, run_key
from tests.streaming.telling import add, until

NAME = "hub-under-test"


@pytest.fixture
async def reading() -> AsyncIterator[Redis]:
    """The hub's client, as the product makes it; its connections have a name to kill them by."""
    async with streams_client() as client:
        client.connection_pool.connection_kwargs["client_name"] = NAME
        yield client


def live(run_id: UUID | None = None) -> Live:
    return Live(run_id or uuid4(), "m", "free")


async def say(redis: Redis, run_id: UUID, seq: int) -> None:
    await add(redis, run_id, EntryId(1, seq), Delta("x", seq - 1))


async def take(subscription: Subscription, count: int) -> list[int]:
    """The next `count` entries' numbers."""
    taken: list[int] = []
    async with asyncio.timeout(15):
        while len(taken) < count:
            note = await subscription.next()
            assert isinstance(note, Arrived), note
            taken += [entry.id.seq for entry in note.entries]
    return taken


async def test_a_run_that_joins_a_blocked_reader_is_heard_at_once(hub: Hub, redis: Redis) -> None:
    first, second = live(), live()
    await hub.join(first, None)
    await until(lambda: hub._is_blocked)
    subscription = await hub.join(second, None)
    await say(redis, second.run_id, 1)

    async with asyncio.timeout(hub_module.BLOCK_MS / 1000 / 2):
        await subscription.next()


async def test_two_readers_of_a_run_share_one_reading(hub: Hub, redis: Redis) -> None:
    run = live()
    readers = [await hub.join(run, None) for _ in range(2)]
    for seq in range(1, 6):
        await say(redis, run.run_id, seq)

    assert [await take(reader, 5) for reader in readers] == [[1, 2, 3, 4, 5]] * 2


async def test_who_joins_later_is_told_how_far_the_hub_is(hub: Hub, redis: Redis) -> None:
    run = live()
    first = await hub.join(run, None)
    await say(redis, run.run_id, 1)
    await take(first, 1)

    late = await hub.join(run, None)

    assert late.since == EntryId(1, 1)


async def test_killed_connections_lose_and_double_nothing(hub: Hub, redis: Redis) -> None:
    run = live()
    subscription = await hub.join(run, None)
    for seq in range(1, 61):
        await say(redis, run.run_id, seq)
        if seq % 10 == 0:
            for client in await redis.client_list():
                if client["name"] == NAME:
                    await redis.client_kill_filter(_id=client["id"])
        await asyncio.sleep(0.01)

    assert await take(subscription, 60) == list(range(1, 61))


async def test_an_outage_ends_where_it_began(redis: Redis) -> None:
    run = live()
    async with Wire(settings.STREAMS_URL) as wire, Redis.from_url(wire.url) as client:
        hub = Hub(client)
        hub.start()
        subscription = await hub.join(run, None)
        await say(redis, run.run_id, 1)
        assert await take(subscription, 1) == [1]

        await wire.cut()
        await say(redis, run.run_id, 2)
        joined = await asyncio.wait_for(hub.join(live(), None), 5)
        await asyncio.sleep(0.5)
        await wire.mend()

        assert await take(subscription, 1) == [2]
        await say(redis, joined.live.run_id, 1)
        assert await take(joined, 1) == [1]
        await hub.stop()


async def test_a_slow_reader_is_dropped_and_the_others_are_not(
    hub: Hub, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox, "NOTES", 3)
    run = live()
    slow, quick = await hub.join(run, None), await hub.join(run, None)

    for seq in range(1, 9):
        await say(redis, run.run_id, seq)
        assert await take(quick, 1) == [seq]

    assert await slow.next() == Dropped()
    assert not any(slow in followed.readers for followed in hub._followed.values())


async def test_unreadable_entries_end_their_own_run_only(hub: Hub, redis: Redis) -> None:
    bad, good = live(), live()
    bad_reader, good_reader = await hub.join(bad, None), await hub.join(good, None)
    await redis.xadd(run_key(bad.run_id), {"nonsense": 1}, id="1-1")
    await say(redis, good.run_id, 1)

    assert await take(good_reader, 1) == [1]
    assert await asyncio.wait_for(bad_reader.next(), 5) == Dropped()


async def test_nobody_is_left_behind(hub: Hub) -> None:
    run = live()
    readers = [await hub.join(run, None) for _ in range(3)]

    for reader in [*readers, *readers]:
        hub.leave(reader)

    assert not hub._followed


class DeafHub(Hub):
    """A hub whose reading turns its cancellation into another error, as a connection lost at that moment does."""

    async def _blocking_read(self, _cursors: object) -> NoReturn:
        self._is_blocked = True
        try:
            await asyncio.sleep(60)
        finally:
            raise ConnectionError


async def test_a_hub_stops_though_its_cancellation_is_lost(reading: Redis) -> None:
    hub = DeafHub(reading)
    hub.start()
    await hub.join(live(), None)
    await until(lambda: hub._is_blocked)

    await asyncio.wait_for(hub.stop(), 5)


async def test_a_closed_hub_sends_everybody_away(hub: Hub) -> None:
    before = await hub.join(live(), None)
    hub.close()
    after = await hub.join(live(), None)

    assert await before.next() == await after.next() == Dropped()


async def test_many_talking_runs_share_reads(hub: Hub, redis: Redis) -> None:
    runs = [live() for _ in range(200)]
    readers = [await hub.join(run, None) for run in runs]
    reads_before, entries = hub.reads, 20
    for seq in range(1, entries + 1):
        async with redis.pipeline(transaction=False) as pipe:
            for run in runs:
                await say(pipe, run.run_id, seq)
            await pipe.execute()
        await asyncio.sleep(0.01)

    assert [await take(reader, entries) for reader in readers] == [list(range(1, entries + 1))] * len(runs)
    assert hub.reads - reads_before < len(runs) * entries / 50


async def test_the_watch_tells_of_ended_rows_and_of_places_in_the_room(
    hub: Hub, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chat.streaming.watch.INTERVAL_S", 0.05)
    over, waiting = live(), live()
    over_reader = await hub.join(over, EntryId(1, 1))
    waiting_reader = await hub.join(waiting, None)
    calls = 0

    async def positions(runs: object) -> dict[UUID, Wait]:
        assert runs == [waiting]
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ConnectionError  # a watch that dies leaves readers waiting for ever
        return {waiting.run_id: Wait(7, 30)}

    async def ended_among(run_ids: object) -> list[UUID]:
        return [over.run_id]

    watching = asyncio.create_task(Watch(hub, positions, ended_among, written_of_none).run())
    assert await asyncio.wait_for(over_reader.next(), 5) == RowEnded()
    assert await asyncio.wait_for(waiting_reader.next(), 5) == Moved(Wait(7, 30))
    watching.cancel()


async def written_of_none(run_ids: object) -> dict[UUID, Written]:
    raise AssertionError(run_ids)


async def test_the_watch_asks_once_for_all_lost_readers_and_only_for_them(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chat.streaming.watch.LOST_INTERVAL_S", 0.05)
    runs = [live(), live(), live()]
    readers = [await hub.join(run, EntryId(1, 1)) for run in (*runs, runs[0])]
    for reader in (readers[0], readers[1], readers[3]):
        reader.is_lost = True
    so_far = Written(1, "abc", {})
    asked: list[object] = []

    async def written_of(run_ids: Collection[UUID]) -> dict[UUID, Written]:
        asked.append(list(run_ids))
        if len(asked) == 1:
            raise ConnectionError
        return dict.fromkeys(run_ids, so_far)

    async def nothing(_: object) -> dict[UUID, Wait]:
        return {}

    async def nobody(_: object) -> list[UUID]:
        return []

    watching = asyncio.create_task(Watch(hub, nothing, nobody, written_of).run())
    for reader in (readers[0], readers[1], readers[3]):
        assert await asyncio.wait_for(reader.next(), 5) == PutBy(so_far)
    watching.cancel()
    assert asked == [[runs[0].run_id, runs[1].run_id]] * 2


class Wire:
    """A TCP wire to a server, which can be cut and mended."""

    def __init__(self, target: str) -> None:
        self._target = urlsplit(target)
        self._server: asyncio.Server | None = None
        self._port = 0
        self._ends: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        """The server's address by way of this wire."""
        credential, at, _ = self._target.netloc.rpartition("@")
        return self._target._replace(netloc=f"{credential}{at}127.0.0.1:{self._port}").geturl()

    async def __aenter__(self) -> Wire:
        await self.mend()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.cut()

    async def mend(self) -> None:
        """Take connections."""
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        """Refuse connections, and end those there are."""
        assert self._server
        self._server.close()
        for end in self._ends:
            end.close()
        self._ends.clear()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(self._target.hostname, self._target.port)
        self._ends |= {writer, far_writer}
        with contextlib.suppress(OSError):
            await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(65536):
        writer.write(chunk)
        await writer.drain()
    writer.close()
