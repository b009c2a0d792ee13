"""What a failover may lose, since a replica is told after the writer is: entries that Redis had said it has."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from signal import SIGCONT, SIGKILL, SIGSTOP
from uuid import UUID, uuid4

from redis.asyncio import Redis
from redis.crc import key_slot
from redis.exceptions import RedisError

from inference.servers import asynchronous
from inference.streams import EntryId, newest, run_key
from tests.cluster.nodes import ValkeyCluster, until
from tests.sse_client import Reading
from tests.streaming.telling import Telling, Web


async def test_text_that_a_failover_has_lost_is_read_from_the_rows(
    failing_over: ValkeyCluster, web: Web, telling: Telling, reading: Redis
) -> None:
    primary, replica = failing_over.primary_of(key_slot(run_key(telling.run.pk).encode()))
    await telling.start()
    await telling.say("What both have. ")
    await asyncio.to_thread(until, lambda: replica.says("CLUSTER COUNTKEYSINSLOT", slot_of(telling)) == 1)
    early = Reading()
    reading_early = asyncio.create_task(web.api.read(telling.path, early))
    replica.signal(SIGSTOP)
    primary.says("CLIENT", "KILL", "TYPE", "replica")  # else the kernel keeps for it what it is sent
    for piece in ("Lost ", "by ", "the ", "failover. "):
        await telling.say(piece)
    while early.text != telling.text:  # noqa: ASYNC110  (it has no event)
        await asyncio.sleep(0.01)
    await telling.put_by()
    primary.signal(SIGKILL)
    replica.signal(SIGCONT)
    await asyncio.to_thread(until, lambda: replica.is_primary)

    assert await kept(reading, telling.run.pk) == EntryId(1, 1)  # of five deltas that it had said it has

    telling.redis, late = reading, Reading()
    reading_late = asyncio.create_task(web.api.read(telling.path, late))
    await telling.say("What came after.")
    await telling.end()
    assert set(await asyncio.wait_for(asyncio.gather(reading_early, reading_late), 20)) == {200}
    assert early.text == late.text == telling.text
    assert early.ended == late.ended is not None
    assert "reset" not in {event.name for event in (*early.events, *late.events)}


async def test_who_only_sends_pipelines_finds_the_replica_that_stands_in(failing_over: ValkeyCluster) -> None:
    key = run_key(uuid4())
    primary, replica = failing_over.primary_of(key_slot(key.encode()))
    async with asynchronous(failing_over.url) as redis:
        assert await is_added(redis, key)
        primary.signal(SIGKILL)
        await asyncio.to_thread(until, lambda: replica.is_primary)

        async with asyncio.timeout(20):
            while not await is_added(redis, key):  # noqa: ASYNC110  (it has no event)
                await asyncio.sleep(0.1)


async def kept(redis: Redis, run_id: UUID) -> EntryId | None:
    """The newest entry, as soon as the nodes that are left have told who holds it."""
    async with asyncio.timeout(20):
        while True:
            with suppress(RedisError):
                return await newest(redis, run_id)
            await asyncio.sleep(0.1)


async def is_added(redis: Redis, key: str) -> bool:
    """Whether a pipeline could add an entry."""
    pipe = redis.pipeline(transaction=False)
    pipe.xadd(key, {"k": "x"})
    try:
        await pipe.execute()
    except RedisError:
        return False
    return True


def slot_of(telling: Telling) -> int:
    """Where its stream is."""
    return key_slot(run_key(telling.run.pk).encode())
