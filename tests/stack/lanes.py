"""Runs that are asked for, read, and stopped at every moment, from one client or several at once."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tests.sse_client import Api, Reading

MAX_WAIT_S = 1.5


class Way(StrEnum):
    """How a run is stopped."""

    ONCE = "once"
    TWICE = "twice at once, by two web processes"
    WITH_ITS_CHAT = "while its chat is deleted"


@dataclass
class Stopped:
    """One run that somebody stopped: what its reader got, and what the call said."""

    run_id: str
    chat_id: str
    way: Way
    reading: Reading = field(default_factory=Reading)
    phase: str = ""
    told_after_s: float = 0.0


class Lane:
    """A user who asks and stops, one run after the other, a few in the same chat."""

    def __init__(self, webs: Sequence[Api], dice: random.Random) -> None:
        self._webs = webs
        self._dice = dice
        self._chat_id: str | None = None

    async def run(self, cancels: int) -> list[Stopped]:
        """Stop so many runs."""
        return [await self._stop_one() for _ in range(cancels)]

    async def _stop_one(self) -> Stopped:
        if self._dice.random() < 0.3:
            self._chat_id = None
        asked = await self._web.ask(self._question(), self._chat_id)
        self._chat_id = str(asked["chat_id"])
        stopped = Stopped(asked["run_id"], self._chat_id, self._dice.choices(list(Way), weights=(8, 1, 1))[0])
        reader = asyncio.create_task(self._read(asked["stream"], stopped))
        await asyncio.sleep(self._dice.choice((0, self._dice.random() * 0.1, self._dice.random() * MAX_WAIT_S)))
        began_at = time.monotonic()
        stopped.phase = await self._stop(stopped)
        await reader
        stopped.told_after_s = time.monotonic() - began_at
        return stopped

    @property
    def _web(self) -> Api:
        return self._dice.choice(self._webs)

    def _question(self) -> str:
        wishes: dict[str, Any] = {"first_token_ms": self._dice.choice((0, 0, 500)), "chars": 300}
        if self._dice.random() < 0.2:
            wishes["chars"] = self._dice.randrange(20)  # so that its end and the cancel meet
        return f"{self._dice.random()} [[script {json.dumps(wishes)}]]"

    async def _read(self, path: str, stopped: Stopped) -> None:
        """Read to the end, or until the chat is gone; some are cut on the way and go on at another process."""
        cut: int | None = self._dice.randrange(1, 400) if self._dice.random() < 0.3 else None
        while stopped.reading.ended is None:
            if await self._web.read(path, stopped.reading, cut) == 404:
                assert stopped.way is Way.WITH_ITS_CHAT
                return
            cut = None

    async def _stop(self, stopped: Stopped) -> str:
        """Stop it; returns where the run was by what the first answer says."""
        text_so_far = stopped.reading.text
        calls = [self._web.call("POST", f"/api/runs/{stopped.run_id}/cancel")]
        if stopped.way is Way.TWICE:
            calls.append(self._web.call("POST", f"/api/runs/{stopped.run_id}/cancel"))
        if stopped.way is Way.WITH_ITS_CHAT:
            calls.append(self._web.call("DELETE", f"/api/chats/{self._chat_id}"))
            self._chat_id = None
        (status, run), *others = await asyncio.gather(*calls)
        expected = {200, 202} if stopped.way is not Way.WITH_ITS_CHAT else {200, 202, 204, 404}
        statuses = {status, *(other for other, _ in others)}
        assert statuses <= expected, statuses
        return phase(status, run, text_so_far)


def phase(status: int, run: Any, text_so_far: str) -> str:
    """Where a run was that was told to stop."""
    if status == 404:
        return "deleted first"
    if run["status"] == "done":
        return "ended first"
    if not run["attempt"]:
        return "queued"
    return "in mid-answer" if text_so_far else "before the first token"
