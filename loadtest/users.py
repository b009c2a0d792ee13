"""Locust's user: a person who chats with Palaver over its API, with a key of their own."""

from __future__ import annotations

import itertools
import json
import time
from collections import deque
from collections.abc import Iterator
from typing import Any, ClassVar

import gevent
from locust import FastHttpUser, task
from locust.contrib.fasthttp import FAILURE_EXCEPTIONS
from locust.exception import StopUser

from loadtest.behaviour import Behaviour, Person
from loadtest.measuring import Answer, fail, follow
from loadtest.stepping import Recorder

REFUSED = (429, 503)
RETRY_AFTER_S = 5.0  # where a refusal does not say
UNKNOWN = "unknown"  # the tier of who could not be told it
FOLLOW = "GET a run's stream"


class Unanswered(Exception):
    """A call met something else than it should; the text names it."""


class Chatter(FastHttpUser):
    """Asks, reads the answer as it comes, thinks; after some turns begins a new chat."""

    keys: ClassVar[list[str]] = []
    behaviour: ClassVar[Behaviour]
    recorder: ClassVar[Recorder]
    network_timeout = 60.0  # streams are never silent for longer than 15 s
    connection_timeout = 30.0
    _numbers: ClassVar[Iterator[int]] = itertools.count()

    def on_start(self) -> None:
        """Nobody asks at once: all who come at the same time would do it together."""
        number = next(self._numbers)
        self.person = Person(self.behaviour, number)
        self.headers = {"Authorization": f"Bearer {self.keys[number % len(self.keys)]}"}
        self.chat: str | None = None
        self.tier = UNKNOWN
        self.tier = self._tier()
        gevent.sleep(self.person.thinks_s())

    def wait_time(self) -> float:
        """Between an answer and the next question."""
        return self.person.thinks_s()

    @task
    def turn(self) -> None:
        """One question and its answer."""
        try:
            self.chat = self.chat or self._new_chat()
            if self.chat:
                self._ask(self.chat)
        except Unanswered as problem:
            self.recorder.failed(self.tier, str(problem))
            self.chat = None
        if not self.person.goes_on():
            self.chat = None

    def _ask(self, chat: str) -> None:
        content = {"content": self.person.question(), "max_output_tokens": self.person.answer_tokens()}
        sent_at = self.recorder.clock()
        asked = self._called("POST", f"/api/chats/{chat}/messages", "POST a question", content)
        if asked is None:  # refused, and the time that was asked for has passed
            return
        answer = self.recorder.asked(self.tier, sent_at)
        self._read(asked["stream"], answer)

    def _read(self, path: str, answer: Answer) -> None:
        try:
            with self.client.get(path, headers=self.headers, stream=True, catch_response=True, name=FOLLOW) as response:
                if response.status_code != 200:
                    response.failure(f"HTTP {response.status_code}")
                    fail(answer, f"stream_{response.status_code}", self.recorder.clock())
                    return
                lines = _lines(response)
                follow(answer, lines, self.recorder.clock)
                deque(lines, maxlen=0)  # to the end, so that the connection can be used again
                if answer.failure:
                    response.failure(answer.failure)
        except FAILURE_EXCEPTIONS as error:
            if answer.ended_at is None:
                fail(answer, type(error).__name__, self.recorder.clock())
        self._tell_locust(answer)

    def _tell_locust(self, answer: Answer) -> None:
        """For its own tables and pages."""
        if answer.ttft_s is not None:
            self.environment.events.request.fire(
                request_type="SSE",
                name="first words",
                response_time=1000 * answer.ttft_s,
                response_length=0,
                exception=None,
                context={},
            )

    def _new_chat(self) -> str | None:
        made = self._called("POST", "/api/chats", "POST a chat", {})
        return str(made["id"]) if made else None

    def _tier(self) -> str:
        try:
            usage = self._called("GET", "/api/usage", "GET usage", None)
        except Unanswered:
            return UNKNOWN
        return str(usage["tier"]) if usage else UNKNOWN

    def _called(self, method: str, path: str, name: str, body: dict[str, Any] | None) -> dict[str, Any] | None:
        """What it answered; None if it was refused, once the time that it asked for has passed. Raises `Unanswered`."""
        payload = None if body is None else json.dumps(body)
        headers = {**self.headers, "Content-Type": "application/json"} if body is not None else self.headers
        with self.client.request(
            method, path, data=payload, headers=headers, catch_response=True, name=name
        ) as response:
            if response.status_code in REFUSED:
                response.failure(_code(response))
                self.recorder.refused(self.tier, _code(response))
                retry_after_s = _retry_after_s(response)
            elif not 200 <= response.status_code < 300:
                why = _code(response) if response.status_code else type(response.error).__name__
                response.failure(why)
                if response.status_code == 401:
                    raise StopUser
                raise Unanswered(why)
            else:
                return _object(response)
        gevent.sleep(retry_after_s)
        return None


def now() -> float:
    """Seconds of a clock that nobody sets."""
    return time.perf_counter()


def _lines(response: Any) -> Iterator[bytes]:
    """Each as soon as it is there, until the answer ends or the server hangs up.

    By hand: the client's own `readline` never returns, nor lets anybody else go on, once the server has hung up.
    """
    raw, rest = response._response, b""
    while True:
        *lines, rest = (rest + bytes(raw._body_buffer)).split(b"\n")
        raw._body_buffer.clear()
        yield from lines
        if raw.message_complete or not (data := raw._sock.recv(raw.block_size)):
            return
        raw.feed(data)


def _object(response: Any) -> dict[str, Any]:
    try:
        return dict(response.json())
    except (ValueError, TypeError):
        raise Unanswered("not_json") from None


def _code(response: Any) -> str:
    """The problem's own name, else the status."""
    try:
        return str(response.json()["code"])
    except (ValueError, KeyError, TypeError):
        return f"http_{response.status_code}"


def _retry_after_s(response: Any) -> float:
    try:
        return max(0.1, float(response.headers.get("Retry-After") or RETRY_AFTER_S))
    except ValueError:
        return RETRY_AFTER_S
