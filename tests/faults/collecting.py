"""Gathers a world's records: rows, what is left in both Redis, and gauges, once all is over."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any, cast
from uuid import UUID

from celery import Celery
from psycopg.rows import dict_row
from redis.asyncio import Redis

from inference.streams import Entry, entry, run_key
from tests.faults import audit, bookkeeping
from tests.faults.crowd import Seen
from tests.faults.records import Bounds, Change, Gauges, Records, Row
from tests.faults.world import World

SETTLES_WITHIN_S = 60.0
LOOK_EVERY_S = 0.5
INSPECT_WITHIN_S = 3.0
# Kombu's bindings, the queue for answers of workers, what a dead worker had pulled, until the visibility timeout; how
# fast queues drained, what rooms keep when nobody waits, and what workers told of themselves.
KEPT = ("_kombu.", "unacked", "drain:", "counters:", "owners:", "workers:")
ROWS = """
    SELECT run.id, status, attempt, hand_backs, answer_id, finish_reason, error_code, input_tokens, cached_tokens,
           output_tokens, resumed_at, question.content AS question, run.created_at, finished_at, cancel_requested_at,
           worker, charged_tokens
      FROM chat_run run JOIN chat_message question ON question.id = run.prompt_id WHERE kind = 'reply'
     ORDER BY run.id
"""
MESSAGES = "SELECT id, content FROM chat_message WHERE role = 'assistant'"
LIVE = "SELECT count(*) FROM chat_run WHERE status IN ('queued', 'streaming')"


async def collected(world: World, seen: Seen, bounds: Bounds) -> Records:
    """Everything, as soon as nothing moves any more; after a while as it is then."""
    gauges = await _settled(world)
    rows, changes, messages = await asyncio.to_thread(_stored, world)
    return Records(
        bounds=bounds,
        rows=rows,
        changes=changes,
        messages=messages,
        streams=await _streams(world, [row.id for row in rows]),
        reads=seen.reads,
        asked=seen.asked,
        discarded=seen.discarded,
        requests=seen.requests,
        gauges=gauges,
        accounts=await bookkeeping.accounts(world),
    )


async def _settled(world: World) -> Gauges:
    give_up_at = time.monotonic() + SETTLES_WITHIN_S
    while True:
        gauges = await _gauges(world)
        if _is_zero(gauges, len(world.workers)) or time.monotonic() > give_up_at:
            return gauges
        await asyncio.sleep(LOOK_EVERY_S)


def _is_zero(gauges: Gauges, workers: int) -> bool:
    held = [value for load in gauges.workers.values() for value in load.values()]
    left = (gauges.live_runs, gauges.broker_keys, gauges.reservations, *held)
    return not any(left) and len(gauges.workers) == workers


async def _gauges(world: World) -> Gauges:
    async with world.redis_of(world.broker) as broker:
        keys = [key.decode() async for key in broker.scan_iter()]
        books: list[Any] = [await broker.hkeys(key) for key in keys if key.startswith("owners:")]
    return Gauges(
        live_runs=await asyncio.to_thread(_live_runs, world),
        broker_keys=[key for key in keys if not key.startswith(KEPT)] + _listed(books),
        workers=await asyncio.to_thread(_loads, world.broker_url),
        reservations=await bookkeeping.reserved(world),
    )


def _listed(books: Sequence[Sequence[bytes]]) -> list[str]:
    """Runs and users in rooms' books, beside the virtual time."""
    return [field.decode() for book in books for field in book if field != b"now"]


def _live_runs(world: World) -> int:
    with world.database() as connection:
        counted = connection.execute(LIVE).fetchone()
    assert counted
    return int(counted[0])


def _loads(broker_url: str) -> Mapping[str, Mapping[str, float]]:
    with Celery(broker=broker_url) as app:
        replies: dict[str, Any] = app.control.inspect(timeout=INSPECT_WITHIN_S).stats() or {}
    return {
        name: {
            "in_hand": reply["pool"]["in-hand"],
            "running": reply["pool"]["engine"]["running"],
            "waiting": reply["pool"]["engine"]["waiting"],
        }
        for name, reply in replies.items()
    }


def _stored(world: World) -> tuple[list[Row], list[Change], dict[UUID, str]]:
    with world.database() as connection:
        with connection.cursor(row_factory=dict_row) as cursor:
            rows = [Row(**columns) for columns in cursor.execute(ROWS)]
            changes = [Change(**columns) for columns in cursor.execute(audit.READ)]
        messages: dict[UUID, str] = dict(connection.execute(MESSAGES).fetchall())
    return rows, changes, messages


async def _streams(world: World, run_ids: Sequence[UUID]) -> Mapping[UUID, Sequence[Entry]]:
    async with world.redis_of(world.streams) as redis:
        found = {run_id: await _entries(redis, run_id) for run_id in run_ids}
    return {run_id: entries for run_id, entries in found.items() if entries}


async def _entries(redis: Redis, run_id: UUID) -> Sequence[Entry]:
    rows = cast(list[tuple[bytes, dict[bytes, bytes]]], await redis.xrange(run_key(run_id)))
    return [entry(*row) for row in rows]
