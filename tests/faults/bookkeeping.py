"""Reads a world's accounts, once nothing moves any more; and what is reserved, while it still does."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, cast
from uuid import UUID

from psycopg import Connection
from psycopg.rows import dict_row
from redis.asyncio import Redis

from tests.faults import audit, bucket_log
from tests.faults.accounts import Accounts, Bill, Bucket, Page, Purse, Sums
from tests.faults.world import World

LEDGER = """
    SELECT user_id, day, model_id, runs, input_tokens, cached_tokens, output_tokens, charged_tokens
      FROM scheduler_ledgerentry
"""
PURSES = """
    SELECT id, coalesce(own.budget_tokens, tier.budget_tokens),
           coalesce(own.refill_tokens_per_hour, tier.refill_tokens_per_hour)
      FROM chat_user JOIN scheduler_tier tier ON tier.slug = tier_id
      LEFT JOIN scheduler_override own ON own.user_id = id AND own.until > now()
"""
PERCENTS = "SELECT slug, cached_token_percent FROM scheduler_model"
OF_THE_BUCKET = {b"missing", b"at", b"per_hour"}
DEADLINES = "SELECT slug, queue_deadline_s FROM scheduler_tier"


async def accounts(world: World) -> Accounts:
    """What the database, the ledger and the buckets say."""
    stored = await asyncio.to_thread(_stored, world)
    operations = await asyncio.to_thread(lambda: list(bucket_log.operations(world.streams)))
    return Accounts(
        **stored,
        buckets=await buckets(world),
        operations=operations,
        is_log_whole=bucket_log.is_whole(world.streams),
    )


async def buckets(world: World) -> Mapping[UUID, Bucket]:
    """Those that are there, by user."""
    async with world.redis_of(world.streams) as redis:
        keys = [key async for key in redis.scan_iter("budget:*")]
        return {UUID(key.decode().rpartition(":")[2]): await _bucket(redis, key) for key in keys}


async def reserved(world: World) -> Sequence[str]:
    """What is held in buckets, and what their index has: user and run."""
    held = {f"{user}:{run_id}" for user, bucket in (await buckets(world)).items() for run_id in bucket.held}
    async with world.redis_of(world.streams) as redis:
        async for key in redis.scan_iter("reservations:*"):
            held |= {name.decode() for name in cast(list[bytes], await redis.zrange(key, 0, -1))}
    return sorted(held)


async def _bucket(redis: Redis, key: bytes) -> Bucket:
    fields = cast(dict[bytes, bytes], await cast(Any, redis.hgetall(key)))
    held = {UUID(name.decode()): int(tokens) for name, tokens in fields.items() if name not in OF_THE_BUCKET}
    return Bucket(int(fields[b"missing"]), int(fields[b"at"]), held)


def _stored(world: World) -> dict[str, Any]:
    with world.database() as connection:
        with connection.cursor(row_factory=dict_row) as cursor:
            bills = [Bill(**columns) for columns in cursor.execute(audit.BILLS)]
        return {
            "bills": bills,
            "ledger": _ledger(connection),
            "purses": {user: Purse(*numbers) for user, *numbers in connection.execute(PURSES)},
            "cached_token_percents": dict(connection.execute(PERCENTS).fetchall()),
            "deadlines_s": dict(connection.execute(DEADLINES).fetchall()),
        }


def _ledger(connection: Connection[Any]) -> Mapping[Page, Sums]:
    return {(user, day, model): Sums(*numbers) for user, day, model, *numbers in connection.execute(LEDGER)}
