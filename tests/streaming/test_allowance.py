"""Event streams and their refusals say how many requests and tokens are left, and why not, as other answers do."""

from __future__ import annotations

import re
from datetime import timedelta
from uuid import uuid4

import pytest

from chat.streaming import opening
from scheduler.errors import BudgetExhausted, QueueFull, Refused
from tests.sse_client import Answer, Api, Reading, request
from tests.streaming.telling import Telling, Web

POLICY = re.compile(r'"requests";q=\d+;w=60, "tokens";q=\d+;w=\d+;qu="tokens"')
LEFT = re.compile(r'"requests";r=\d+;t=\d+, "tokens";r=\d+;t=0')


def is_told(answer: Answer) -> bool:
    """Whether both headers are there, in their form."""
    return bool(
        POLICY.fullmatch(answer.headers.get("ratelimit-policy", ""))
        and LEFT.fullmatch(answer.headers.get("ratelimit", ""))
    )


async def test_streams_say_what_is_left_before_their_first_event(web: Web, telling: Telling) -> None:
    for path in (telling.path, "/api/events", f"/api/events?run={telling.run.pk}"):
        async with web.api.stream(path) as answer:
            assert (answer.status, is_told(answer)) == (200, True)


async def test_a_stream_that_was_read_to_its_end_says_it_with_204(web: Web, telling: Telling) -> None:
    await telling.start()
    await telling.end()
    told = Reading()
    await web.api.read(telling.path, told)

    async with web.api.stream(telling.path, told.last_id) as answer:
        assert (answer.status, is_told(answer)) == (204, True)


@pytest.mark.parametrize(("path", "status"), [("/api/runs/{}/stream", 404), ("/api/events?run={}", 404)])
async def test_what_is_not_found_says_it_too(web: Web, path: str, status: int) -> None:
    async with web.api.stream(path.format(uuid4())) as answer:
        assert (answer.status, is_told(answer)) == (status, True)


async def test_a_bad_event_id_and_a_wrong_method_say_it_too(web: Web, telling: Telling) -> None:
    async with web.api.stream(telling.path, "nonsense") as answer:
        assert (answer.status, is_told(answer)) == (400, True)
    async with request(web.port, "POST", telling.path, web.api.headers) as answer:
        assert (answer.status, is_told(answer)) == (405, True)


async def test_a_stream_for_nobody_says_nothing(web: Web, telling: Telling) -> None:
    async with Api(web.port, "pal_wrong").stream(telling.path) as answer:
        assert (answer.status, "ratelimit" in answer.headers) == (401, False)


@pytest.mark.parametrize(
    ("refusal", "told"), [(BudgetExhausted(timedelta(milliseconds=1001), 5), (429, "2")), (QueueFull(7), (503, "7"))]
)
async def test_whatever_refuses_a_stream_is_told_as_elsewhere(
    web: Web, telling: Telling, monkeypatch: pytest.MonkeyPatch, refusal: Refused, told: tuple[int, str]
) -> None:
    def refuse(*_: object) -> None:
        raise refusal

    monkeypatch.setattr(opening, "followed", refuse)

    async with web.api.stream(telling.path) as answer:
        assert (answer.status, answer.headers["retry-after"]) == told
        assert ((await answer.json())["code"], is_told(answer)) == (refusal.code, True)
