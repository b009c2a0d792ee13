"""A limit that an operator changes in the admin while the product is busy."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import psycopg
from psycopg.rows import dict_row

from tests.sse_client import Api, request
from tests.stack.stack import Stack, new_users

LOAD = 8  # who ask one question after the other
LONG = f"[[script {json.dumps({'chars': 20_000})}]]"
SHORT = f"[[script {json.dumps({'text': 'Yes.'})}]]"
TOKEN = "t" * 32
PROMOTE = "UPDATE chat_user SET is_staff = true, is_superuser = true WHERE username = %s RETURNING id"
TO_FREE = """
    UPDATE chat_user SET tier_id = 'free' FROM chat_apikey
     WHERE chat_apikey.user_id = chat_user.id AND digest = encode(sha256(%s::bytea), 'hex')
"""
FREE = "SELECT * FROM scheduler_tier WHERE slug = 'free'"
AUDIT = "SELECT actor_id, action, changes FROM auditlog_logentry WHERE object_pk = 'free' ORDER BY id DESC LIMIT 1"


@asynccontextmanager
async def busy(api: Api) -> AsyncIterator[list[float]]:
    """Questions meanwhile; how long each took to be taken."""
    took_s: list[float] = []

    async def ask_for_ever() -> None:
        while True:
            began_at = time.monotonic()
            await api.ask(SHORT)
            took_s.append(time.monotonic() - began_at)

    tasks = [asyncio.create_task(ask_for_ever()) for _ in range(LOAD)]
    try:
        yield took_s
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


@asynccontextmanager
async def operator(stack: Stack, database: psycopg.Connection[Any]) -> AsyncIterator[tuple[httpx.AsyncClient, str]]:
    """Somebody signed in who may use the admin, and the id."""
    name, password = f"operator-{secrets.token_hex(4)}", secrets.token_urlsafe(16)
    page = {"Cookie": f"csrftoken={TOKEN}", "X-CSRFToken": TOKEN}
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{stack.port}", timeout=60) as client:
        account = {"username": name, "password1": password, "password2": password}
        assert (await client.post("/sign-up", data=account, headers=page)).status_code == 302
        client.headers["X-CSRFToken"] = client.cookies["csrftoken"]  # signing in has made a new one
        row = database.execute(PROMOTE, [name]).fetchone()
        assert row
        yield client, str(row[0])


async def asked(api: Api, content: str) -> int:
    chat = (await api.post("/api/chats", {}))["id"]
    async with request(api.door, "POST", f"/api/chats/{chat}/messages", api.headers, {"content": content}) as answer:
        return answer.status


async def test_the_next_request_meets_it_and_the_log_says_whose_change_it_was(
    scripted_stack: Stack, figures: Callable[[str], None]
) -> None:
    with psycopg.connect(scripted_stack.database_url, autocommit=True) as database:
        [key] = new_users(scripted_stack.database_url, 1)
        database.execute(TO_FREE, [key.encode()])
        tier = database.cursor(row_factory=dict_row).execute(FREE).fetchone()
        assert tier
        user = Api(scripted_stack.port, key)
        async with operator(scripted_stack, database) as (client, operator_id), busy(scripted_stack.api) as took_s:
            assert [await asked(user, LONG) for _ in range(2)] == [202, 202]
            try:
                began_at = time.monotonic()
                page = "/admin/scheduler/tier/free/change/"
                assert (await client.post(page, data={**tier, "concurrency": 1})).status_code == 302

                assert await asked(user, SHORT) == 429
            finally:
                in_force_s, under_load = time.monotonic() - began_at, len(took_s)
                database.execute(
                    "UPDATE scheduler_tier SET concurrency = %s WHERE slug = 'free'", [tier["concurrency"]]
                )
        entry = database.execute(AUDIT).fetchone()

    assert entry
    assert (str(entry[0]), entry[2]) == (operator_id, {"concurrency": [str(tier["concurrency"]), "1"]})
    figures(
        f"a limit changed in the admin was met {1000 * in_force_s:.0f} ms later, {under_load} questions into the load"
    )
