"""Where runs stand and for how long, asked of the broker for many at once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from uuid import uuid4

import pytest
from django.conf import settings
from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from uuid6 import uuid7

from chat.streaming.connect import broker_client
from chat.streaming.hub import Live, Wait
from chat.streaming.positions import RoomPositions
from scheduler.room import Room, drain_key
from tests.metering import metered
from tests.rooms import strangers


@pytest.fixture
def redis() -> Iterator[Redis]:
    with Redis.from_url(settings.BROKER_URL) as client:
        yield client


@pytest.fixture
async def broker() -> AsyncIterator[AsyncRedis]:
    async with broker_client() as client:
        yield client


@pytest.fixture
def name(redis: Redis) -> Iterator[str]:
    """A model of this test's own."""
    name = f"positions-{uuid4().hex[:12]}"
    yield name
    for key in redis.scan_iter(f"*{name}*"):
        redis.delete(key)


def waiting(redis: Redis, model: str, tier: str, count: int) -> list[Live]:
    """Runs in that tier's room, first come first."""
    runs = [uuid7() for _ in range(count)]
    Room(redis, model, tier).release(0, strangers(runs))
    return [Live(run_id, model, tier) for run_id in runs]


async def test_places_and_estimates_of_many_runs_cost_one_round_trip(
    redis: Redis, broker: AsyncRedis, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    free, pro = waiting(redis, name, "free", 3), waiting(redis, name, "pro", 2)
    redis.hset(drain_key(name), mapping={"runs": 12, "busy_ms": 60_000, "squares": 12 * 10_000 * 5_000})
    gone = Live(uuid7(), name, "free")
    ask = RoomPositions(broker)
    await broker.ping()  # connected

    with metered(monkeypatch) as costs:
        waits = await ask([*free, gone, *pro])

    assert costs.round_trips == 1
    assert [waits[live.run_id] for live in free] == [Wait(1, 10), Wait(2, 20), Wait(3, 25)]
    assert [waits[live.run_id] for live in pro] == [Wait(1, 10), Wait(2, 20)]
    assert waits[gone.run_id] == Wait()


async def test_with_the_broker_away_nothing_is_known_and_nothing_is_refused() -> None:
    live = Live(uuid7(), "m", "free")
    async with AsyncRedis.from_url("redis://127.0.0.1:1/0") as away:
        assert await RoomPositions(away)([live]) == {live.run_id: Wait()}
