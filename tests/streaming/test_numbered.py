"""A response's numbered events, resumed behind each of them, whatever became of its workers and its stream."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from django.conf import LazySettings

from chat.models import Run, Status
from chat.streaming import rows
from tests.sse_client import request
from tests.streaming.telling import TEXT, Telling, Web, until

pytestmark = pytest.mark.django_db(transaction=True)
Events = Sequence[Mapping[str, Any]]
OPENING = ["response.created", "response.queued", "response.in_progress", "response.output_item.added"]
CLOSING = ["response.output_text.done", "response.content_part.done", "response.output_item.done"]


async def read(web: Web, telling: Telling, starting_after: int | str | None = None) -> Events:
    """To the end."""
    behind = "" if starting_after is None else f"&starting_after={starting_after}"
    path = f"/v1/responses/resp_{telling.run.pk.hex}?stream=true{behind}"
    async with asyncio.timeout(20), request(web.port, "GET", path, web.api.headers) as answer:
        assert answer.status == 200
        return [event.data for event in await answer.events()]


def text_of(events: Events) -> str:
    return "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")


def numbers(events: Events) -> list[int]:
    return [event["sequence_number"] for event in events]


async def two_attempts(telling: Telling) -> None:
    """The second goes on where the first was cut off."""
    await telling.start()
    for piece in (TEXT[:3], TEXT[3:10], TEXT[10:20]):
        await telling.say(piece)
    await telling.take_over(offset=20)
    for piece in (TEXT[20:31], TEXT[31:]):
        await telling.say(piece)


async def test_events_come_in_order_with_growing_numbers(web: Web, telling: Telling) -> None:
    await two_attempts(telling)
    await telling.end()

    events = await read(web, telling)

    names = [event["type"] for event in events]
    assert names[:4] == OPENING
    assert names[-4:-1] == CLOSING
    assert names[-1] == "response.completed"
    assert numbers(events) == sorted(set(numbers(events)))
    assert numbers(events)[:5] == [0, 1, 2, 3, 4]
    assert text_of(events) == TEXT
    [message] = events[-1]["response"]["output"]
    assert message["content"][0]["text"] == TEXT


@pytest.mark.parametrize("is_flushed", [False, True])
async def test_behind_every_event_the_rest_is_told_once(web: Web, telling: Telling, is_flushed: bool) -> None:
    await two_attempts(telling)
    await telling.end()
    whole = await read(web, telling)
    if is_flushed:
        await telling.flush()

    for had in range(len(whole) + 1):
        seen = whole[:had]
        rest = await read(web, telling, starting_after=seen[-1]["sequence_number"] if seen else None)
        assert text_of([*seen, *rest]) == TEXT
        assert numbers([*seen, *rest]) == sorted(set(numbers([*seen, *rest])))
        assert [event["type"] for event in [*seen, *rest]][-4:] == [*CLOSING, "response.completed"]


async def test_while_it_is_written_one_that_was_left_goes_on_behind_what_it_had(web: Web, telling: Telling) -> None:
    await telling.start()
    await telling.say(TEXT[:10])
    await telling.say(TEXT[10:20])

    reading = asyncio.create_task(read(web, telling, starting_after=4 + 13))
    await telling.take_over(offset=20)
    await telling.say(TEXT[20:])
    await telling.end()

    assert text_of(await reading) == TEXT[13:]


async def test_text_that_is_void_ends_the_stream_with_an_error(web: Web, telling: Telling) -> None:
    await telling.start()
    await telling.say(TEXT[:20])
    await telling.put_by()
    reading = asyncio.create_task(read(web, telling))
    await asyncio.sleep(0.2)
    await telling.take_over(offset=5)
    await telling.say(TEXT[5:])
    await telling.end()

    events = await reading

    assert (events[-1]["type"], events[-1]["code"]) == ("error", "text_voided")
    assert text_of(await read(web, telling)) == TEXT


async def test_one_that_was_cancelled_ends_incomplete(web: Web, telling: Telling) -> None:
    await telling.start()
    await telling.say(TEXT[:10])
    await telling.end(Status.CANCELLED)

    *_, last = await read(web, telling)

    assert (last["type"], last["response"]["status"]) == ("response.incomplete", "cancelled")
    assert last["response"]["output"][0]["status"] == "incomplete"


@pytest.mark.parametrize("number", ["-2", "x", "1.5", "", str(2**53), str(5 << 32), "9" * 400])
async def test_a_number_that_no_event_has_is_refused(web: Web, telling: Telling, number: str) -> None:
    await telling.start()
    path = f"/v1/responses/resp_{telling.run.pk.hex}?stream=true&starting_after={number}"

    async with request(web.port, "GET", path, web.api.headers) as answer:
        error = (await answer.json())["error"]

    assert (answer.status, error["param"]) == (400, "starting_after")


async def test_a_chat_that_is_deleted_meanwhile_ends_its_response_as_cancelled(web: Web, telling: Telling) -> None:
    await telling.start()
    reading = asyncio.create_task(read(web, telling))
    await until(lambda: web.readers)
    async with request(web.port, "DELETE", f"/api/chats/{telling.run.chat_id}", web.api.headers) as answer:
        assert answer.status == 204

    last = (await reading)[-1]

    assert (last["type"], last["code"]) == ("error", "run_cancelled")


async def test_what_was_begun_and_refused_does_not_go_on_unseen(
    web: Web, telling: Telling, settings: LazySettings
) -> None:
    settings.STREAMS_PER_USER = 0
    body = {"model": telling.run.model_id, "input": "Hi", "background": True, "stream": True}

    async with request(web.port, "POST", "/v1/responses", web.api.headers, body) as answer:
        assert (answer.status, (await answer.json())["error"]["reason"]) == (429, "too_many_streams")

    new = Run.objects.exclude(pk=telling.run.pk).values_list("status", flat=True)
    async with asyncio.timeout(20):
        while await rows.ask(new.get) != Status.CANCELLED:  # noqa: ASYNC110  (rows have no event)
            await asyncio.sleep(0.01)
