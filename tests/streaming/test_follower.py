"""One reader against a hub that is told what to say: early, late, twice, and not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from uuid import UUID, uuid4

import pytest
from redis.asyncio import Redis

from chat.streaming.follower import Follower
from chat.streaming.hub import Arrived, Hub, Live, Moved, Wait
from chat.streaming.place import Place
from inference.streams import Delta, Ended, Entry, EntryId, Started
from tests.sse_client import EventParser, Reading
from tests.streaming.telling import TEXT, Telling, add

ENTRIES = (
    Entry(EntryId.fence(1), Started(1, "m")),
    Entry(EntryId(1, 1), Delta("ab", 0)),
    Entry(EntryId(1, 2), Delta("cd", 2)),
    Entry(EntryId(1, 3), Delta("ef", 4)),
    Entry(EntryId.terminal(1), Ended("done", {"message_id": "x", "chars": 6})),
)


@pytest.fixture
def hub(redis: Redis) -> Hub:
    """A hub that reads nothing by itself."""
    return Hub(redis)


class Reader:
    """Reads a follower's events as they are told."""

    def __init__(self, redis: Redis, hub: Hub, live: Live, backlog: Sequence[Entry] = ()) -> None:
        self.reading = Reading()
        self._parser = EventParser()
        follower = Follower(redis, hub, positions, live, Place())
        self._told = follower.events(backlog, is_live=True)

    async def names(self, until: str) -> list[str]:
        """Names of the events up to the first called `until`."""
        names: list[str] = []
        async with asyncio.timeout(5):
            while until not in names:
                for event in self._parser.feed(await anext(self._told)):
                    self.reading.take(event)
                    names.append(event.name)
        return names


async def positions(waiting: Sequence[Live]) -> Mapping[UUID, Wait]:
    """The place of a run that waits: the third, of which nothing was measured."""
    return {live.run_id: Wait(3) for live in waiting}


async def store(redis: Redis, live: Live, entries: Sequence[Entry]) -> None:
    """Have Redis hold the entries."""
    for entry in entries:
        await add(redis, live.run_id, entry.id, entry.event)


def a_run() -> Live:
    return Live(uuid4(), "m", "free")


async def test_entries_that_the_reader_has_are_not_told_again(hub: Hub, redis: Redis) -> None:
    live = a_run()
    reader = Reader(redis, hub, live, ENTRIES[:2])
    assert await reader.names("delta") == ["started", "delta"]

    hub.tell(live.run_id, Arrived(ENTRIES))

    assert await reader.names("done") == ["delta", "delta", "done"]
    assert reader.reading.text == "abcdef"


async def test_what_the_hub_read_before_the_reader_joined_is_read_again(hub: Hub, redis: Redis) -> None:
    live = a_run()
    await hub.join(live, ENTRIES[2].id)
    await store(redis, live, ENTRIES[:3])

    reader = Reader(redis, hub, live)

    assert await reader.names("delta") == ["started", "delta", "delta"]


async def test_a_gap_is_bridged_from_the_stream_at_once(hub: Hub, redis: Redis) -> None:
    live = a_run()
    reader = Reader(redis, hub, live, ENTRIES[:2])
    await reader.names("delta")
    await store(redis, live, ENTRIES[:4])

    hub.tell(live.run_id, Arrived(ENTRIES[3:4]))

    assert await reader.names("delta") == ["delta", "delta"]
    assert reader.reading.text == "abcdef"


async def test_nothing_is_told_behind_an_end_that_only_postgres_knew(hub: Hub, redis: Redis, telling: Telling) -> None:
    await telling.start()
    await telling.say(TEXT)
    await telling.flush()
    await telling.end()
    live = Live(telling.run.pk, "m", "free")
    # Another reader has seen the end, so that this one reads again, and finds the text gone.
    await hub.join(live, EntryId.terminal(1))

    reader = Reader(redis, hub, live)

    assert await reader.names("done") == ["delta", "done"]
    assert reader.reading.text == TEXT


async def test_a_place_and_an_estimate_are_told_when_they_change_and_not_otherwise(hub: Hub, redis: Redis) -> None:
    live = a_run()
    reader = Reader(redis, hub, live)
    assert await reader.names("queued") == ["queued"]

    for wait in (Wait(3), Wait(3, 9), Wait(2, 9), Wait(2, 9), Wait(2, 5), Wait()):
        hub.tell(live.run_id, Moved(wait))
    hub.tell(live.run_id, Arrived(ENTRIES))
    hub.tell(live.run_id, Moved(Wait(9)))

    assert await reader.names("done") == [*4 * ["queued"], "started", "delta", "delta", "delta", "done"]
    waits = [event.data for event in reader.reading.events if event.name == "queued"]
    assert [(wait["position"], wait["eta_s"]) for wait in waits] == [(3, None), (3, 9), (2, 9), (2, 5), (None, None)]


async def test_a_reader_that_leaves_is_forgotten_at_once(hub: Hub, redis: Redis) -> None:
    follower = Follower(redis, hub, positions, a_run(), Place())
    told = follower.events((), is_live=True)
    await anext(told)
    assert hub._followed

    await told.aclose()

    assert not hub._followed
