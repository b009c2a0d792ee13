"""A user's program: it repeats what got no answer, at either web process, and keeps a record of how it was served."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from tests import sse_client
from tests.faults.records import Request, Verdict

# A try that gets no answer (the connection is refused, reset or silent) is repeated after a short pause. The request
# counts as answered by a repetition that was sent within this time, else as lost, though it is repeated further.
REPEAT_WITHIN_S = 8.0
# Above the web process's own patience with a database that is away (10 s for a connection).
ANSWER_WITHIN_S = 15.0
PAUSE_S = 0.3
MAX_NOT_NOW_S = 2.0
GIVE_UP_AFTER_S = 90.0
NO_ANSWER = (OSError, asyncio.IncompleteReadError, TimeoutError)
# To a request that is right in itself, the product may say: not now.
NOT_NOW = {409, 429, 503}
# It may also say: never, as long as you may do so little. And what is gone need not be deleted again.
NEVER = {"prompt_exceeds_budget"}
DELETE, GONE = "delete", 404
MUST_SAY_WHEN = {429, 503}


class Unserved(Exception):
    """No answer came to any try."""


@dataclass(frozen=True, slots=True)
class Answered:
    """A whole answer."""

    status: int
    headers: Mapping[str, str]
    body: Any

    @property
    def is_served(self) -> bool:
        """Whether it is what was asked for."""
        return self.status < 300

    @property
    def not_now_s(self) -> float:
        """How long a patient program waits before it asks again."""
        return min(MAX_NOT_NOW_S, self.retry_after_s)

    @property
    def retry_after_s(self) -> float:
        """When it may be worth another try, as the product says."""
        return float(self.headers.get("retry-after", 1))


class Client:
    """One user's requests."""

    def __init__(self, ports: Sequence[int], key: str, dice: random.Random, log: list[Request]) -> None:
        self._ports = itertools.cycle(dice.sample(ports, len(ports)))
        self._headers = {"Authorization": f"Bearer {key}"}
        self._log = log

    async def call(
        self, what: str, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Answered:
        """Send a request, and again until it is answered. Raises `Unserved`."""
        sends = _Tries(what, self._log)
        for port in self._tries(sends):
            try:
                async with asyncio.timeout(ANSWER_WITHIN_S):
                    answered = await self._send(port, method, path, body, headers or {})
            except NO_ANSWER as failure:
                await sends.failed(failure)
                continue
            sends.answered(answered)
            return answered
        raise Unserved(what)

    @asynccontextmanager
    async def stream(self, path: str, last_id: str | None) -> AsyncIterator[sse_client.Answer | None]:
        """Open an event stream behind `last_id`; None where it is refused, or nobody answers."""
        headers = self._headers | ({"Last-Event-ID": last_id} if last_id else {})
        sends = _Tries("stream", self._log)
        for port in self._tries(sends):
            async with AsyncExitStack() as stack:
                try:
                    async with asyncio.timeout(ANSWER_WITHIN_S):
                        answer = await stack.enter_async_context(sse_client.request(port, "GET", path, headers))
                        refusal = None if answer.status < 300 else await _whole(answer)
                except NO_ANSWER as failure:
                    await sends.failed(failure)
                    continue
                sends.answered(refusal or Answered(answer.status, answer.headers, None))
                if refusal is None:
                    yield answer
                    return
            await asyncio.sleep(refusal.not_now_s)
            break
        yield None

    def _tries(self, sends: _Tries) -> Iterator[int]:
        while not sends.is_over:
            sends.begin()
            yield next(self._ports)

    async def _send(self, port: int, method: str, path: str, body: Any, headers: Mapping[str, str]) -> Answered:
        async with sse_client.request(port, method, path, self._headers | dict(headers), body) as answer:
            return await _whole(answer)


class _Tries:
    """The tries of one request, and what they come to in the log."""

    def __init__(self, what: str, log: list[Request]) -> None:
        self._what = what
        self._log = log
        self._began_at = self._sent_at = time.monotonic()
        self._first_failed_at: float | None = None
        self._tries = 0
        self._last = ""

    @property
    def is_over(self) -> bool:
        """Whether it is no use any more."""
        if time.monotonic() - self._began_at < GIVE_UP_AFTER_S:
            return False
        self._note(Verdict.LOST, self._last)
        return True

    def begin(self) -> None:
        """One more goes out."""
        self._tries += 1
        self._sent_at = time.monotonic()

    async def failed(self, failure: BaseException) -> None:
        """No answer came to a try."""
        if self._first_failed_at is None:
            self._first_failed_at = time.monotonic()
        self._last = type(failure).__name__
        await asyncio.sleep(PAUSE_S)

    def answered(self, answered: Answered) -> None:
        """An answer came."""
        if self._first_failed_at is not None and self._sent_at - self._first_failed_at > REPEAT_WITHIN_S:
            self._note(Verdict.LOST, f"{self._last}, then {answered.status}")
        else:
            self._note(*judged(self._what, answered))

    def _note(self, verdict: Verdict, said: str) -> None:
        self._log.append(Request(self._what, verdict, self._tries, time.monotonic() - self._began_at, said))


def judged(what: str, answered: Answered) -> tuple[Verdict, str]:
    """How the product has answered such a request, and with what, where it did not serve it."""
    if answered.is_served or (what, answered.status) == (DELETE, GONE):
        return Verdict.SERVED, ""
    code = answered.body.get("code") if isinstance(answered.body, dict) else None
    is_problem = answered.headers.get("content-type") == "application/problem+json" and code
    says_when = answered.headers.get("retry-after", "").isdigit() or answered.status not in MUST_SAY_WHEN
    is_proper = is_problem and says_when and (answered.status in NOT_NOW or code in NEVER)
    said = f"{answered.status} {code or str(answered.body)[:200]}{'' if says_when else ' without Retry-After'}"
    return (Verdict.REFUSED if is_proper else Verdict.WRONG), said


async def _whole(answer: sse_client.Answer) -> Answered:
    body = await answer.body()
    try:
        return Answered(answer.status, answer.headers, json.loads(body) if body else None)
    except ValueError:
        return Answered(answer.status, answer.headers, body.decode(errors="replace"))
