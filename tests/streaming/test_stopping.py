"""Requests that are under way when a web process has no more time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from uuid import uuid4

import pytest

from chatsite.asgi import Application

Sending = Callable[[Mapping[str, Any]], Awaitable[None]]


class Slow(Application):
    """Answers after a long time, or begins to and then takes long."""

    def __init__(self, *, begins: bool) -> None:
        super().__init__()
        self._begins = begins
        self.is_at_it = asyncio.Event()

    async def handle(self, _scope: Any, _receive: Any, send: Sending) -> None:
        if self._begins:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        self.is_at_it.set()
        await asyncio.sleep(600)


async def cut_off(application: Slow, path: str) -> list[Mapping[str, Any]]:
    """What a client is sent whose request is cancelled, as uvicorn does at the end of its patience."""
    sent: list[Mapping[str, Any]] = []

    async def send(message: Mapping[str, Any]) -> None:
        sent.append(message)

    async def receive() -> Mapping[str, Any]:
        await asyncio.sleep(600)
        return {}

    task = asyncio.create_task(application({"type": "http", "path": path}, receive, send))
    await application.is_at_it.wait()
    task.cancel()
    await asyncio.wait({task})
    return sent


@pytest.mark.parametrize("path", ["/api/chats", f"/api/runs/{uuid4()}/stream"])
async def test_a_request_that_was_not_answered_is_told_to_come_again(path: str) -> None:
    start, body = await cut_off(Slow(begins=False), path)

    assert start["status"] == 503
    assert (b"retry-after", b"1") in start["headers"]
    assert json.loads(body["body"])["code"] == "stopping"


@pytest.mark.parametrize("path", ["/api/chats", f"/api/runs/{uuid4()}/stream"])
async def test_an_answer_that_has_begun_breaks_off(path: str) -> None:
    [start] = await cut_off(Slow(begins=True), path)

    assert start["status"] == 200
