"""Token buckets on a real Redis: held once, settled once, filled by its clock, and to the millisecond."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import cast
from uuid import UUID, uuid4

import pytest
from django.conf import settings
from redis import Redis
from uuid6 import uuid7

from inference.servers import blocking
from scheduler.budgets import Level, Reservation, TokenBuckets, bucket_key, index_key
from scheduler.dispensable import DispensableRedis
from scheduler.errors import BudgetExhausted
from scheduler.limits import Limits
from tests.acts import at_once

# A token an hour: in a test nothing comes back that was not given back.
LIMITS = Limits(budget_tokens=1000, refill_tokens_per_hour=1, concurrency=1, max_output_tokens=1)
UNITS = 3_600_000


@pytest.fixture
def redis() -> Iterator[Redis]:
    with blocking(settings.STREAMS_URL) as client:
        yield client


@pytest.fixture
def user_id(redis: Redis) -> Iterator[UUID]:
    user_id = uuid4()
    yield user_id
    redis.delete(bucket_key(user_id))
    for key in redis.scan_iter("reservations:*"):
        for name in cast(list[bytes], redis.zrange(key, 0, -1)):
            if name.decode().startswith(str(user_id)):
                redis.zrem(key, name)


@pytest.fixture
def buckets() -> TokenBuckets:
    return TokenBuckets(DispensableRedis(settings.STREAMS_URL))


def held(redis: Redis, user_id: UUID) -> dict[str, int]:
    fields = cast(dict[bytes, bytes], redis.hgetall(bucket_key(user_id)))
    return {
        name.decode(): int(number) for name, number in fields.items() if name not in {b"missing", b"at", b"per_hour"}
    }


def now_ms(redis: Redis) -> int:
    seconds, microseconds = redis.time()
    return seconds * 1000 + microseconds // 1000


def refusal(buckets: TokenBuckets, user_id: UUID, tokens: int, limits: Limits = LIMITS) -> BudgetExhausted:
    with pytest.raises(BudgetExhausted) as caught:
        buckets.reserve(Reservation(user_id, uuid7()), tokens, limits)
    return caught.value


def test_what_is_reserved_is_gone_and_what_was_not_used_comes_back(buckets: TokenBuckets, user_id: UUID) -> None:
    reservation = Reservation(user_id, uuid7())
    buckets.reserve(reservation, 600, LIMITS)
    assert buckets.level(user_id, LIMITS).tokens == 400

    assert buckets.settle(reservation, 250)

    assert buckets.level(user_id, LIMITS).tokens == 750


def test_a_repeated_call_holds_and_settles_once(buckets: TokenBuckets, redis: Redis, user_id: UUID) -> None:
    reservation = Reservation(user_id, uuid7())
    for _ in range(3):
        buckets.reserve(reservation, 600, LIMITS)
    assert held(redis, user_id) == {str(reservation.run_id): 600}

    assert [buckets.settle(reservation, 100) for _ in range(3)] == [True, False, False]

    assert buckets.level(user_id, LIMITS).tokens == 900
    assert held(redis, user_id) == {}


def test_a_refusal_changes_nothing(buckets: TokenBuckets, redis: Redis, user_id: UUID) -> None:
    buckets.reserve(Reservation(user_id, uuid7()), 600, LIMITS)
    before = redis.dump(bucket_key(user_id)), redis.zcard(index_key(user_id.int % 64))

    refusal(buckets, user_id, 401)

    assert (redis.dump(bucket_key(user_id)), redis.zcard(index_key(user_id.int % 64))) == before
    fresh = uuid4()
    refusal(buckets, fresh, 1001)
    assert not redis.exists(bucket_key(fresh))


def test_the_wait_is_exact_to_the_millisecond(buckets: TokenBuckets, redis: Redis, user_id: UUID) -> None:
    limits = replace(LIMITS, refill_tokens_per_hour=3600)
    buckets.reserve(Reservation(user_id, uuid7()), 1000, limits)
    at = int(cast(bytes, redis.hget(bucket_key(user_id), "at")))
    assert (
        int(cast(bytes, redis.hget(bucket_key(user_id), "missing"))) == 1000 * UNITS
    )  # 100 tokens, one a second, are there 100,000 ms after `at`

    before, wait, after = now_ms(redis), refusal(buckets, user_id, 100, limits).wait, now_ms(redis)

    assert at + 100_000 - after <= wait / timedelta(milliseconds=1) <= at + 100_000 - before
    redis.hset(bucket_key(user_id), "at", now_ms(redis) - 100_000)
    buckets.reserve(Reservation(user_id, uuid7()), 100, limits)


def test_a_bucket_fills_at_its_rate_and_no_further_than_full(
    buckets: TokenBuckets, redis: Redis, user_id: UUID
) -> None:
    buckets.reserve(Reservation(user_id, uuid7()), 1000, LIMITS)
    at = int(cast(bytes, redis.hget(bucket_key(user_id), "at")))
    redis.hset(bucket_key(user_id), "at", at - 500 * UNITS)
    level = buckets.level(user_id, LIMITS)
    assert level.tokens == 500
    assert 500 * 3600 - 60 < level.full_in_s <= 500 * 3600

    redis.hset(bucket_key(user_id), "at", at - 5000 * UNITS)
    assert buckets.level(user_id, LIMITS) == Level(1000, 0)


def test_a_clock_that_is_given_is_the_only_one(user_id: UUID) -> None:
    now = [5 * UNITS]
    buckets = TokenBuckets(DispensableRedis(settings.STREAMS_URL), clock=lambda: now[0])
    reservation = Reservation(user_id, uuid7())
    buckets.reserve(reservation, 1000, LIMITS)
    assert refusal(buckets, user_id, 100).wait == timedelta(hours=100)
    assert reservation not in buckets.reserved_before(timedelta(hours=1))

    now[0] += 100 * UNITS

    assert buckets.level(user_id, LIMITS) == Level(100, 900 * 3600)
    buckets.reserve(Reservation(user_id, uuid7()), 100, LIMITS)
    assert reservation in buckets.reserved_before(timedelta(hours=1))


def test_what_comes_back_into_a_full_bucket_is_no_more_than_full(
    buckets: TokenBuckets, redis: Redis, user_id: UUID
) -> None:
    reservation = Reservation(user_id, uuid7())
    buckets.reserve(reservation, 300, LIMITS)
    redis.hset(bucket_key(user_id), "at", int(cast(bytes, redis.hget(bucket_key(user_id), "at"))) - 5000 * UNITS)

    buckets.settle(reservation, 0)

    assert buckets.level(user_id, LIMITS).tokens == 1000


def test_of_many_at_once_those_get_in_for_whom_there_is_enough(buckets: TokenBuckets, user_id: UUID) -> None:
    def reserve() -> int:
        try:
            buckets.reserve(Reservation(user_id, uuid7()), 90, LIMITS)
        except BudgetExhausted:
            return 0
        return 1

    assert sum(at_once([reserve] * 30)) == 11
    assert buckets.level(user_id, LIMITS).tokens == 10


def test_sums_of_many_small_amounts_are_not_rounded(buckets: TokenBuckets, redis: Redis, user_id: UUID) -> None:
    limits = replace(LIMITS, budget_tokens=2_000_000_000)
    for _ in range(50):
        reservation = Reservation(user_id, uuid7())
        buckets.reserve(reservation, 1, limits)
        buckets.settle(reservation, 1)

    missing, at = (int(n) for n in cast(list[bytes], redis.hmget(bucket_key(user_id), "missing", "at")))
    assert 50 * UNITS - 60_000 <= missing <= 50 * UNITS  # a unit a millisecond comes back
    assert at <= now_ms(redis)


def test_a_bucket_that_redis_lost_is_full_and_its_reservations_are_forgotten(
    buckets: TokenBuckets, redis: Redis, user_id: UUID
) -> None:
    reservation = Reservation(user_id, uuid7())
    buckets.reserve(reservation, 600, LIMITS)
    redis.delete(bucket_key(user_id))

    assert not buckets.settle(reservation, 600)

    assert buckets.level(user_id, LIMITS).tokens == 1000
    assert reservation not in buckets.reserved_before(timedelta(0))


def test_what_is_reserved_is_found_by_its_age(buckets: TokenBuckets, redis: Redis, user_id: UUID) -> None:
    old, new = Reservation(user_id, uuid7()), Reservation(user_id, uuid7())
    for reservation in (old, new):
        buckets.reserve(reservation, 10, LIMITS)
    redis.zincrby(index_key(user_id.int % 64), -10_000, str(old))

    found = [
        reservation for reservation in buckets.reserved_before(timedelta(seconds=5)) if reservation.user_id == user_id
    ]
    assert found == [old]
    buckets.settle(old, 0)
    assert old not in buckets.reserved_before(timedelta(seconds=5))


def pass_h(redis: Redis, user_id: UUID, hours: float) -> None:
    """Time passes: the bucket was written so much longer ago."""
    redis.hincrby(bucket_key(user_id), "at", -int(hours * UNITS))


def test_another_rate_counts_from_when_it_is_seen_and_not_for_the_past(
    buckets: TokenBuckets, redis: Redis, user_id: UUID
) -> None:
    slow, fast = (replace(LIMITS, refill_tokens_per_hour=rate) for rate in (10, 100))
    buckets.reserve(Reservation(user_id, uuid7()), 1000, slow)
    pass_h(redis, user_id, 5)

    assert buckets.level(user_id, fast).tokens == 50
    pass_h(redis, user_id, 1)
    assert buckets.level(user_id, fast).tokens == 150
    assert buckets.level(user_id, slow).tokens == 150
    pass_h(redis, user_id, 5)
    wait = refusal(buckets, user_id, 400, fast).wait
    assert (
        timedelta(hours=2) - timedelta(minutes=5) < wait <= timedelta(hours=2)
    )  # of which this test's own time is gone
    pass_h(redis, user_id, 2)
    buckets.reserve(Reservation(user_id, uuid7()), 400, fast)


def test_the_rate_behind_an_override_counts_from_its_end(buckets: TokenBuckets, redis: Redis, user_id: UUID) -> None:
    own = replace(LIMITS, refill_tokens_per_hour=1)
    ended_at = datetime.now(UTC) - timedelta(hours=3)
    tiers = replace(LIMITS, refill_tokens_per_hour=100, refill_since=ended_at)
    buckets.reserve(Reservation(user_id, uuid7()), 1000, own)
    pass_h(redis, user_id, 5.5)

    assert buckets.level(user_id, tiers).tokens in {301, 302, 303}
    # What ended before the bucket was last written says nothing of another change since.
    pass_h(redis, user_id, 1)
    faster = replace(tiers, refill_tokens_per_hour=500, refill_since=ended_at - timedelta(hours=9))
    assert buckets.level(user_id, faster).tokens in {401, 402, 403}


def test_another_capacity_holds_at_once_and_loses_nothing(buckets: TokenBuckets, user_id: UUID) -> None:
    buckets.reserve(Reservation(user_id, uuid7()), 600, LIMITS)

    assert buckets.level(user_id, replace(LIMITS, budget_tokens=5000)).tokens == 4400
    assert buckets.level(user_id, replace(LIMITS, budget_tokens=100)).tokens == 0
    refusal(buckets, user_id, 1, replace(LIMITS, budget_tokens=100))
    assert buckets.level(user_id, LIMITS).tokens == 400


def test_a_bucket_is_kept_until_it_has_filled_at_the_rate_of_now(
    buckets: TokenBuckets, redis: Redis, user_id: UUID
) -> None:
    buckets.reserve(Reservation(user_id, uuid7()), 1000, replace(LIMITS, refill_tokens_per_hour=3600))
    buckets.level(user_id, LIMITS)

    assert redis.ttl(bucket_key(user_id)) > 999 * 3600


def test_with_redis_away_everything_passes_and_nothing_is_counted(user_id: UUID) -> None:
    buckets = TokenBuckets(DispensableRedis("redis://127.0.0.1:1/0"))
    reservation = Reservation(user_id, uuid7())

    buckets.reserve(reservation, 600, LIMITS)

    assert not buckets.settle(reservation, 600)
    assert buckets.level(user_id, LIMITS) == Level(1000, 0)
    assert buckets.reserved_before(timedelta(0)) == []
