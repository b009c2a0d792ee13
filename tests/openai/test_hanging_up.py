"""Clients that hang up at any moment: where the connection is the request, nothing of it is left."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import psycopg
from redis import Redis

from inference import reports
from tests.browser.visitor import scripted
from tests.budgets.recounting import left_reservations
from tests.sse_client import request
from tests.stack.stack import MODEL, Stack, new_users

CLIENTS, USERS = 200, 20
LONGEST_S = 3.0
PATIENCE_S = 60
LIVE = "SELECT count(*) FROM chat_run WHERE status IN ('queued', 'streaming') AND user_id = ANY(%s)"
ENDED = "SELECT status, count(*) FROM chat_run WHERE user_id = ANY(%s) GROUP BY status"
USER_IDS = """
    SELECT array_agg(user_id) FROM chat_apikey
     WHERE digest IN (SELECT encode(sha256(key::bytea), 'hex') FROM unnest(%s::text[]) key)
"""


async def hang_up(stack: Stack, key: str, path: str, body: Any, after_s: float) -> None:
    headers = {"Authorization": f"Bearer {key}"}
    try:
        async with asyncio.timeout(after_s), request(stack.port, "POST", path, headers, body) as answer:
            async for _ in answer.chunks():
                pass
    except TimeoutError:
        pass


async def test_two_hundred_clients_hang_up_and_leave_nothing(scripted_stack: Stack) -> None:
    keys = new_users(scripted_stack.database_url, USERS)
    unending = scripted("Word by word. " * 5, unending=True)
    messages = [{"role": "user", "content": unending}]
    requests: list[tuple[str, dict[str, Any]]] = [
        ("/v1/chat/completions", {"model": MODEL, "messages": messages, "stream": True}),
        ("/v1/chat/completions", {"model": MODEL, "messages": messages}),
        ("/v1/responses", {"model": MODEL, "input": unending, "stream": True}),
        ("/v1/responses", {"model": MODEL, "input": unending}),
    ]
    dice = random.Random(7)

    await asyncio.gather(
        *(
            hang_up(scripted_stack, keys[n % USERS], *requests[n % 4], after_s=dice.uniform(0.0, LONGEST_S))
            for n in range(CLIENTS)
        )
    )

    with psycopg.connect(scripted_stack.database_url, autocommit=True) as database:
        [[users]] = database.execute(USER_IDS, [list(keys)])
        async with asyncio.timeout(PATIENCE_S):
            while database.execute(LIVE, [users]).fetchall() != [(0,)]:  # noqa: ASYNC110  (rows have no event)
                await asyncio.sleep(0.1)
        ended: dict[str, int] = dict(database.execute(ENDED, [users]).fetchall())
    assert set(ended) == {"cancelled"}
    assert ended["cancelled"] > CLIENTS / 2  # the rest hung up before they were heard
    with Redis.from_url(scripted_stack.streams_url) as redis:
        async with asyncio.timeout(PATIENCE_S):
            while held(redis):  # noqa: ASYNC110  (as above)
                await asyncio.sleep(0.1)
        assert [*left_reservations(users, redis)] == []


def held(redis: Redis) -> float:
    """What the worker has in hand, and its engine, by its latest report."""
    [worker] = reports.read(redis)
    in_hand = sum(tier.in_hand for tier in worker.report.tiers.values())
    return in_hand + worker.report.engine["requests"] + worker.report.engine["kv_waiting"]
