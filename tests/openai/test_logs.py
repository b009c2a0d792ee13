"""What the processes log under load holds no prompt, answer, key, cookie or password."""

from __future__ import annotations

import asyncio
import re
from typing import Any
from uuid import uuid4

import httpx

from tests.browser.visitor import PASSWORD, scripted
from tests.stack.stack import MODEL, Stack, new_users

ROUNDS = 12
PATIENCE_S = 60


async def ask_every_way(stack: Stack, key: str, question: str, http: httpx.AsyncClient) -> None:
    """Well and badly, by each API."""
    headers = {"Authorization": f"Bearer {key}"}
    messages = [{"role": "system", "content": question}, {"role": "user", "content": question}]

    async def post(path: str, body: Any, key: str | None = None, **query: str) -> Any:
        sent = {"Authorization": f"Bearer {key}"} if key else headers
        answer = await http.post(path, json=body, headers=sent, params=query)
        return answer.json() if answer.headers["content-type"].endswith("json") else {}

    chat = (await post("/api/chats", {}))["id"]
    await asyncio.gather(
        post(f"/api/chats/{chat}/messages", {"content": question}),
        post("/v1/chat/completions", {"model": MODEL, "messages": messages, "stop": question}),
        post("/v1/chat/completions", {"model": MODEL, "messages": messages, "stream": True}),
        post("/v1/responses", {"model": MODEL, "input": question, "instructions": question}),
        # What cannot be served, and must not be quoted.
        post("/v1/chat/completions", {"model": question, "messages": messages}),
        post("/v1/chat/completions", {"model": MODEL, "messages": [{"role": question, "content": question}]}),
        post("/v1/responses", {"model": MODEL, "input": question, "tools": [question]}),
        post("/v1/responses", {"model": MODEL, "input": question, "previous_response_id": question}),
        post("/v1/responses", {"model": MODEL, "input": f"{question}\0"}),
        post("/v1/responses", {"model": MODEL, "input": question}, key=f"{key}x"),
        post(f"/api/chats/{chat}/messages", {"content": "", "model": question}),
        http.post("/v1/responses", content=f'{{"{question}', headers=headers),
    )


async def session_of(http: httpx.AsyncClient, name: str) -> str:
    """Sign up, then fail to sign in; returns the session's cookie."""
    await http.get("/sign-up")
    form = {"csrfmiddlewaretoken": http.cookies["csrftoken"]}
    await http.post("/sign-up", data={**form, "username": name, "password1": PASSWORD, "password2": PASSWORD})
    session = http.cookies["sessionid"]
    async with httpx.AsyncClient(base_url=http.base_url) as other:
        await other.get("/sign-in")
        form = {"csrfmiddlewaretoken": other.cookies["csrftoken"]}
        await other.post("/sign-in", data={**form, "username": name, "password": f"{PASSWORD}x"})
    return session


async def test_logs_hold_no_secret(scripted_stack: Stack) -> None:
    asked, answer, fails = (f"{word}-{uuid4().hex}" for word in ("asked", "answered", "failed"))
    keys = new_users(scripted_stack.database_url, ROUNDS)
    questions = [
        f"{asked} {scripted(answer, tokens_per_step=5)}",
        f"{asked} {scripted(answer, failure='generation_failed', fail_after_tokens=3)}",
        f"{asked} {scripted(answer, failure='prompt_rejected')}",
        f'{asked} [[script {{"{fails}": 1}}]]',
    ]
    async with httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{scripted_stack.port}", timeout=PATIENCE_S, headers={"User-Agent": asked}
    ) as http:
        session = await session_of(http, f"visitor-{uuid4().hex[:8]}")
        http.cookies.clear()
        await asyncio.gather(
            *(ask_every_way(scripted_stack, key, questions[n % 4], http) for n, key in enumerate(keys))
        )

    logs = {process.name: process.log.read_text(errors="replace") for process in scripted_stack.processes}
    for name, log in logs.items():
        for secret in (asked, answer, fails, session, PASSWORD, *keys, *(key.removeprefix("pal_") for key in keys)):
            assert secret not in log, f"{name}'s log holds {secret}"
    # And there was something to look at.
    assert re.search(r"status=failed code=generation_failed", logs["worker"])
    assert "/v1/responses" in logs["web"]
