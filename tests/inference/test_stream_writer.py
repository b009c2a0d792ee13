"""The stream writer against a real server: fences, lost replies, coalescing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, ClassVar
from uuid import UUID, uuid4

import pytest
from django.conf import settings
from redis.asyncio import Connection, ConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from inference import stream_writer
from inference.stream_writer import Fenced, StreamWriter
from inference.streams import (
    ENDED_TTL_S,
    RUNNING_TTL_S,
    Delta,
    Ended,
    Entry,
    EntryId,
    Reset,
    Started,
    read_after,
    run_key,
)

MODEL = "some-model"
DONE = Ended("done", {"status": "done"})
LONG_WINDOW_S = 0.2
NAME = f"writer-{uuid4().hex}"

Writing = Callable[..., AbstractAsyncContextManager[StreamWriter]]


class FaultyConnection(Connection):
    """Counts what is sent; loses as many replies as it is told to, after the server has executed the commands."""

    sent: ClassVar[int] = 0
    lose: ClassVar[int] = 0

    async def send_packed_command(self, *args: Any, **kwargs: Any) -> None:
        type(self).sent += 1
        await super().send_packed_command(*args, **kwargs)

    async def read_response(self, *args: Any, **kwargs: Any) -> Any:
        try:
            reply = await super().read_response(*args, **kwargs)
        except ResponseError:
            await self._lose_reply()
            raise
        if isinstance(reply, bytes) and b"-" in reply:  # an entry's id
            await self._lose_reply()
        return reply

    async def _lose_reply(self) -> None:
        if type(self).lose:
            type(self).lose -= 1
            await self.disconnect()
            raise RedisConnectionError("the reply was lost")


@pytest.fixture
async def redis() -> AsyncIterator[Redis]:
    async with Redis.from_url(settings.STREAMS_URL) as client:
        yield client


@pytest.fixture
def connection() -> type[FaultyConnection]:
    FaultyConnection.sent = FaultyConnection.lose = 0
    return FaultyConnection


@pytest.fixture
def writing(connection: type[FaultyConnection]) -> Writing:
    """Opens writers, each with connections of its own as each worker process has."""

    @asynccontextmanager
    async def open_writer(window_s: float = 0.03, patience_s: float = 5) -> AsyncIterator[StreamWriter]:
        pool = ConnectionPool.from_url(
            settings.STREAMS_URL, connection_class=connection, client_name=NAME, retry=Retry(NoBackoff(), retries=0)
        )
        async with Redis.from_pool(pool) as client, StreamWriter(client, window_s, patience_s) as writer:
            yield writer

    return open_writer


@pytest.fixture
async def run_id(redis: Redis) -> AsyncIterator[UUID]:
    run_id = uuid4()
    yield run_id
    await redis.delete(run_key(run_id))


def ids(entries: list[Entry]) -> list[tuple[int, int]]:
    return [(entry.id.attempt, entry.id.seq) for entry in entries]


async def until_told(redis: Redis, run_id: UUID, after: EntryId = EntryId(1, 0)) -> None:  # noqa: B008  (frozen)
    async with asyncio.timeout(10):
        while not await read_after(redis, run_id, after):  # noqa: ASYNC110  (the server has no event)
            await asyncio.sleep(0.01)


async def kill_connections(redis: Redis) -> None:
    for client in await redis.client_list():
        if client["name"] == NAME:
            await redis.client_kill_filter(_id=client["id"])


def text_of(entries: list[Entry]) -> str:
    return "".join(entry.event.text for entry in entries if isinstance(entry.event, Delta))


async def test_an_attempt_is_told_from_its_start_to_its_end(writing: Writing, redis: Redis, run_id: UUID) -> None:
    async with writing() as writer:
        stream = await writer.open(run_id, 1, MODEL)
        stream.push("سلام ", [1, 2])
        await stream.flush()
        stream.push("👩‍👩‍👧", [3])
        await stream.end(DONE)

    entries = await read_after(redis, run_id, None)
    assert [entry.event for entry in entries] == [
        Started(1, MODEL),
        Delta("سلام ", 0, (1, 2)),
        Delta("👩‍👩‍👧", 5, (3,)),
        DONE,
    ]
    assert [entry.id for entry in entries] == [EntryId(1, 0), EntryId(1, 1), EntryId(1, 2), EntryId.terminal(1)]


async def test_a_stream_lives_longer_than_its_run_and_then_an_hour(
    writing: Writing, redis: Redis, run_id: UUID
) -> None:
    async with writing() as writer:
        stream = await writer.open(run_id, 1, MODEL)
        while_running = await redis.ttl(run_key(run_id))
        await stream.end(DONE)

    assert RUNNING_TTL_S - 60 < while_running <= RUNNING_TTL_S
    assert ENDED_TTL_S - 60 < await redis.ttl(run_key(run_id)) <= ENDED_TTL_S


async def test_ids_of_unfinished_characters_come_with_the_character(
    writing: Writing, redis: Redis, run_id: UUID
) -> None:
    async with writing() as writer:
        stream = await writer.open(run_id, 1, MODEL)
        stream.push("", [7])
        await stream.flush()
        before = await read_after(redis, run_id, EntryId(1, 0))
        stream.push("ü", [8])
        await stream.flush()

    assert before == []
    assert [entry.event for entry in await read_after(redis, run_id, EntryId(1, 0))] == [Delta("ü", 0, (7, 8))]


async def test_the_first_text_does_not_wait_for_the_window(writing: Writing, redis: Redis, run_id: UUID) -> None:
    async with writing(window_s=3600) as writer:
        stream = await writer.open(run_id, 1, MODEL)
        stream.push("a", [1])
        await until_told(redis, run_id)
        stream.push("b", [2])
        await asyncio.sleep(0.1)
        assert text_of(await read_after(redis, run_id, None)) == "a"
        await stream.flush()

    assert text_of(await read_after(redis, run_id, None)) == "ab"


async def test_a_window_of_many_runs_is_one_append_each_in_one_round_trip(
    writing: Writing, redis: Redis, connection: type[FaultyConnection]
) -> None:
    runs = [uuid4() for _ in range(8)]
    async with writing(window_s=LONG_WINDOW_S) as writer:
        streams = [await writer.open(run_id, 1, MODEL) for run_id in runs]
        for stream in streams:
            stream.push("first ", [0])
        await asyncio.gather(*(stream.flush() for stream in streams))
        await asyncio.sleep(LONG_WINDOW_S)
        connection.sent = 0
        for token in range(50):
            for stream in streams:
                stream.push(f"{token} ", [token])
        await until_told(redis, runs[-1], after=EntryId(1, 1))
        round_trips = connection.sent
        appended = [len(await read_after(redis, run_id, EntryId(1, 1))) for run_id in runs]

    assert round_trips == 1
    assert appended == [1] * 8
    await redis.delete(*map(run_key, runs))


async def test_a_stream_that_was_lost_and_made_anew_does_not_stay_for_good(
    writing: Writing, redis: Redis, run_id: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_writer, "LIMIT_AGAIN_S", 0.0)
    async with writing() as writer:
        stream = await writer.open(run_id, 1, MODEL)
        await redis.delete(run_key(run_id))
        stream.push("one", [1])
        await stream.flush()

        assert 0 < await redis.ttl(run_key(run_id)) <= RUNNING_TTL_S


async def test_an_attempt_that_comes_too_late_does_not_lengthen_what_is_left(
    writing: Writing, redis: Redis, run_id: UUID
) -> None:
    async with writing() as ended, writing() as stale:
        await (await ended.open(run_id, 2, MODEL)).end(DONE)
        with pytest.raises(Fenced):
            await stale.open(run_id, 1, MODEL)

        assert 0 < await redis.ttl(run_key(run_id)) <= ENDED_TTL_S


async def test_an_older_attempt_is_fenced_off(writing: Writing, redis: Redis, run_id: UUID) -> None:
    async with writing() as stale_worker, writing() as worker:
        stale = await stale_worker.open(run_id, 1, MODEL)
        stale.push("one", [1])
        await stale.flush()
        fresh = await worker.open(run_id, 2, MODEL)
        fresh.resume([Reset(0)], offset=0)
        stale.push(" stale", [2])
        with pytest.raises(Fenced):
            await stale.flush()
        with pytest.raises(Fenced):
            stale.push(" more", [3])
        await stale.end(DONE)
        fresh.push("two", [4])
        await fresh.end(DONE)

    entries = await read_after(redis, run_id, None)
    assert [entry.event for entry in entries] == [
        Started(1, MODEL),
        Delta("one", 0, (1,)),
        Started(2, MODEL),
        Reset(0),
        Delta("two", 0, (4,)),
        DONE,
    ]
    assert entries[-1].id == EntryId.terminal(2)


async def test_an_older_attempt_cannot_open(writing: Writing, run_id: UUID) -> None:
    async with writing() as writer:
        await writer.open(run_id, 2, MODEL)
        with pytest.raises(Fenced):
            await writer.open(run_id, 1, MODEL)


async def test_a_terminal_entry_is_never_doubled(writing: Writing, redis: Redis, run_id: UUID) -> None:
    async with writing() as writer:
        stream = await writer.open(run_id, 1, MODEL)
        await stream.end(DONE)
        await stream.end(DONE)

    assert [entry.event for entry in await read_after(redis, run_id, None)] == [Started(1, MODEL), DONE]


async def test_nothing_follows_a_terminal_entry_that_another_wrote(
    writing: Writing, redis: Redis, run_id: UUID
) -> None:
    async with writing() as writer, writing() as other:
        stream = await writer.open(run_id, 1, MODEL)
        ending = await other.open(run_id, 1, MODEL)  # same attempt: whoever ends a run in its worker's place
        await ending.end(DONE)
        stream.push("too late", [1])
        with pytest.raises(Fenced):
            await stream.flush()

    assert text_of(await read_after(redis, run_id, None)) == ""


@pytest.mark.parametrize("lost_replies", [1, 3])
async def test_a_lost_reply_neither_loses_nor_doubles_an_entry(
    writing: Writing, redis: Redis, run_id: UUID, connection: type[FaultyConnection], lost_replies: int
) -> None:
    async with writing() as writer:
        stream = await writer.open(run_id, 1, MODEL)
        for number in range(5):
            connection.lose = lost_replies
            stream.push(f"{number} ", [number])
            await stream.flush()
        connection.lose = lost_replies
        await stream.end(DONE)

    entries = await read_after(redis, run_id, None)
    assert text_of(entries) == "0 1 2 3 4 "
    assert ids(entries) == [(1, 0), (1, 1), (1, 2), (1, 3), (1, 4), (1, 5), (1, EntryId.terminal(1).seq)]


async def test_a_refusal_by_a_server_that_a_failover_has_replaced_fences_nobody(
    writing: Writing, redis: Redis, run_id: UUID
) -> None:
    async with writing(window_s=3600) as writer:
        stream = await writer.open(run_id, 1, MODEL)
        stream.push("text", [1])
        stream._seal()
        sent = stream.next_append()
        stream.refused(top=EntryId.fence(1))  # the newest that the new primary has
        assert stream.next_append() is sent
        await stream.end(DONE)

    assert text_of(await read_after(redis, run_id, None)) == "text"


async def test_a_lost_fence_reply_is_no_refusal(
    writing: Writing, redis: Redis, run_id: UUID, connection: type[FaultyConnection]
) -> None:
    async with writing() as writer:
        connection.lose = 1
        stream = await writer.open(run_id, 1, MODEL)
        stream.push("text", [1])
        await stream.end(DONE)

    assert text_of(await read_after(redis, run_id, None)) == "text"


async def test_killed_connections_hang_no_run(writing: Writing, redis: Redis) -> None:
    runs = [uuid4() for _ in range(4)]
    async with writing() as writer:
        streams = [await writer.open(run_id, 1, MODEL) for run_id in runs]
        for number in range(60):
            for stream in streams:
                stream.push(f"{number} ", [number])
            if number % 10 == 0:
                await kill_connections(redis)
            await asyncio.sleep(0.01)
        async with asyncio.timeout(20):
            await asyncio.gather(*(stream.end(DONE) for stream in streams))

    for run_id in runs:
        assert text_of(await read_after(redis, run_id, None)) == "".join(f"{number} " for number in range(60))
    await redis.delete(*map(run_key, runs))


async def test_with_redis_away_text_waits_and_its_writer_does_not(
    writing: Writing, redis: Redis, run_id: UUID, connection: type[FaultyConnection]
) -> None:
    async with writing(patience_s=0.1) as writer:
        stream = await writer.open(run_id, 1, MODEL)
        connection.lose = 1_000_000
        stream.push("kept ", [1])
        async with asyncio.timeout(5):
            await stream.flush()
        stream.push("text", [2])
        connection.lose = 0
        writer.patience_s = 10
        await stream.end(DONE)

    assert text_of(await read_after(redis, run_id, None)) == "kept text"
