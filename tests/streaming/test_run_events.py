"""`GET /api/runs/{id}/stream`, from every place a client may have left off."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from hashlib import sha256
from typing import Any
from uuid import uuid4

import pytest
from django.conf import LazySettings
from redis import Redis
from uuid6 import uuid7

from chat.models import Run, Status
from chat.streaming import rows
from inference.streams import TERMINAL_SEQ, Delta, EntryId, Reset
from scheduler.room import Room, drain_key
from tests.rooms import strangers
from tests.sse_client import EventParser, Reading, request
from tests.streaming.telling import TEXT, Telling, Web, until

PIECES = [TEXT[:7], TEXT[7:20], TEXT[20:24], TEXT[24:]]


async def tell_all(telling: Telling) -> None:
    await telling.start()
    for piece in PIECES:
        await telling.say(piece)
    await telling.end()


async def read_to_end(web: Web, telling: Telling, last_id: str | None = None, text: str = "") -> Reading:
    reading = Reading(text=text, last_id=last_id)
    assert await web.api.read(telling.path, reading) == 200
    return reading


async def test_a_run_is_told_from_the_beginning_to_its_end(web: Web, telling: Telling) -> None:
    await tell_all(telling)

    reading = await read_to_end(web, telling)

    assert [event.name for event in reading.events] == ["started", "delta", "delta", "delta", "delta", "done"]
    assert reading.text == TEXT
    assert reading.events[0].data == {"attempt": 1, "model": "m"}
    assert reading.events[1].data == {"text": PIECES[0], "offset": 0}
    assert reading.ended
    assert reading.ended.data["chars"] == len(TEXT)
    assert reading.ended.data["sha256"] == sha256(TEXT.encode()).hexdigest()
    assert [event.id for event in reading.events[:2]] == ["1-0-0", "1-1-7"]
    assert reading.last_id == f"1-{TERMINAL_SEQ}-{len(TEXT)}"


async def test_headers_keep_proxies_from_holding_events_back(web: Web, telling: Telling) -> None:
    await tell_all(telling)

    async with web.api.stream(telling.path) as answer:
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert answer.headers["cache-control"] == "no-cache, no-transform"
        assert answer.headers["x-accel-buffering"] == "no"
        assert answer.headers["content-encoding"] == "identity"


async def test_a_client_resumes_behind_any_event_it_has(web: Web, telling: Telling) -> None:
    await tell_all(telling)
    whole = await read_to_end(web, telling)

    for index, event in enumerate(whole.events[:-1]):
        seen = "".join(e.data["text"] for e in whole.events[: index + 1] if e.name == "delta")
        again = await read_to_end(web, telling, event.id, seen)
        assert again.events == whole.events[index + 1 :]


async def test_the_query_names_a_place_and_the_header_goes_before_it(web: Web, telling: Telling) -> None:
    await tell_all(telling)
    path = f"{telling.path}?lastEventId=1-1-7"

    by_query, by_header = Reading(text=PIECES[0]), Reading(text=PIECES[0] + PIECES[1], last_id="1-2-20")
    await web.api.read(path, by_query)
    await web.api.read(path, by_header)

    assert by_query.events[0].data["offset"] == 7
    assert by_header.events[0].data["offset"] == 20


async def test_an_empty_place_is_the_beginning(web: Web, telling: Telling) -> None:
    await tell_all(telling)
    reading = Reading()

    await web.api.read(f"{telling.path}?lastEventId=", reading)

    assert reading.text == TEXT


async def test_who_has_the_last_event_is_answered_204(web: Web, telling: Telling) -> None:
    await tell_all(telling)
    whole = await read_to_end(web, telling)

    async with web.api.stream(telling.path, whole.last_id) as answer:
        assert answer.status == 204
        assert await answer.body() == b""


@pytest.mark.parametrize(
    "place", ["x", "1-2", "1-2-3-4", "9-0-0", f"0-{TERMINAL_SEQ}-0", "1-2-%F0", "error", f"run:1-{TERMINAL_SEQ}"]
)
async def test_a_place_that_was_never_given_out_is_answered_400(web: Web, telling: Telling, place: str) -> None:
    await tell_all(telling)

    async with web.api.stream(telling.path, place) as answer:
        problem = await answer.json()

    assert (answer.status, problem["code"]) == (400, "bad_event_id")
    assert answer.headers["content-type"] == "application/problem+json"


async def test_a_last_id_for_a_live_run_is_answered_400(web: Web, telling: Telling) -> None:
    await telling.start()

    async with web.api.stream(telling.path, f"1-{TERMINAL_SEQ}-0") as answer:
        assert answer.status == 400


async def test_an_id_that_a_live_run_has_not_reached_is_answered_400(web: Web, telling: Telling) -> None:
    await telling.start()

    async with web.api.stream(telling.path, "1-5000-3") as answer:
        assert (answer.status, (await answer.json())["code"]) == (400, "bad_event_id")


async def test_an_id_of_a_longer_run_brings_the_whole_text(web: Web, telling: Telling) -> None:
    """Such an id cannot be told from this run's own; who holds other text is told to drop it."""
    await tell_all(telling)

    reading = await read_to_end(web, telling, f"1-{len(PIECES)}-9999", "x" * 9999)

    assert [event.name for event in reading.events] == ["reset", "delta", "done"]
    assert reading.text == TEXT


async def test_without_a_credential_it_is_401(web: Web, telling: Telling) -> None:
    for headers in ({}, {"Authorization": "Bearer pal_wrong"}):
        async with request(web.port, "GET", telling.path, headers) as answer:
            problem = await answer.json()
            assert (answer.status, problem["code"]) == (401, "not_authenticated")
            assert answer.headers["content-type"] == "application/problem+json"


async def test_a_strangers_run_is_404_and_so_is_an_unknown_one(web: Web, telling: Telling, bobs_key: str) -> None:
    await tell_all(telling)

    for path, key in ((telling.path, bobs_key), (f"/api/runs/{uuid4()}/stream", web.key)):
        async with request(web.port, "GET", path, {"Authorization": f"Bearer {key}"}) as answer:
            problem = await answer.json()
            assert (answer.status, problem["code"]) == (404, "not_found")


async def test_only_get_is_taken(web: Web, telling: Telling) -> None:
    async with request(web.port, "POST", telling.path, web.api.headers, {}) as answer:
        assert answer.status == 405


async def test_an_expired_stream_is_told_from_postgres_as_one_delta(web: Web, telling: Telling) -> None:
    await tell_all(telling)
    await telling.flush()

    reading = await read_to_end(web, telling, "1-1-7", PIECES[0])

    assert [event.name for event in reading.events] == ["delta", "done"]
    assert reading.text == TEXT
    assert reading.ended
    assert reading.ended.data == (await telling.ended()).data
    assert reading.last_id == f"1-{TERMINAL_SEQ}-{len(TEXT)}"


async def test_text_of_an_older_attempt_is_taken_back_when_only_postgres_knows(web: Web, telling: Telling) -> None:
    await telling.start(1)
    await telling.say("void")
    await telling.start(2)
    await telling.reset(0)
    await telling.say(TEXT)
    await telling.end()
    await telling.flush()

    for place in ("1-1-4", "2-0-4"):
        reading = await read_to_end(web, telling, place, "void")
        assert [event.name for event in reading.events] == ["reset", "delta", "done"]
        assert reading.text == TEXT


async def test_a_row_that_ended_before_its_terminal_entry_is_enough(web: Web, telling: Telling) -> None:
    await telling.start()
    await telling.say(TEXT)
    await telling.commit()

    reading = await read_to_end(web, telling)

    assert reading.text == TEXT
    assert reading.ended


async def test_a_flushed_stream_of_a_live_run_ends_when_the_row_does(web: Web, telling: Telling) -> None:
    await telling.start()
    await telling.say(PIECES[0])
    await telling.flush()
    reading = Reading(text=PIECES[0], last_id="1-1-7")
    task = asyncio.create_task(web.api.read(telling.path, reading))
    await asyncio.sleep(0.3)
    telling.text = TEXT
    await telling.commit()

    assert await asyncio.wait_for(task, 10) == 200

    assert reading.text == TEXT
    assert [event.name for event in reading.events] == ["delta", "done"]


async def test_text_lost_under_a_live_reader_comes_from_postgres_at_the_end(web: Web, telling: Telling) -> None:
    await telling.start()
    await telling.say("ab")
    reading = Reading()
    task = asyncio.create_task(web.api.read(telling.path, reading))
    await until(lambda: len(reading.text) == 2)
    # Lost before anybody read it: the worker wrote it to a Redis that then forgot everything.
    telling.text, telling.seq = "abcd", 2
    await telling.say("ef")
    await telling.say("gh")
    await telling.end()

    await asyncio.wait_for(task, 10)

    assert reading.text == "abcdefgh"
    assert reading.ended


async def test_an_overlap_in_the_stream_is_told_once(web: Web, telling: Telling) -> None:
    await telling.start(1)
    await telling.say("abc")
    await telling.start(2)
    await telling.add(EntryId(2, 1), Delta("bcde", 1))
    telling.text = "abcde"
    await telling.end()

    assert (await read_to_end(web, telling)).text == "abcde"


async def test_a_reset_voids_text_for_live_readers(web: Web, telling: Telling) -> None:
    await telling.start(1)
    await telling.say("void")
    reading = Reading()
    task = asyncio.create_task(web.api.read(telling.path, reading))
    await until(lambda: reading.text)
    await telling.start(2)
    await telling.add(EntryId(2, 1), Reset(0))
    telling.text, telling.seq = "", 1
    await telling.say("new")
    await telling.end()

    await asyncio.wait_for(task, 10)

    assert reading.text == "new"
    assert [event.name for event in reading.events] == ["started", "delta", "started", "reset", "delta", "done"]


async def test_a_waiting_run_says_where_it_stands_and_then_starts(web: Web, telling: Telling) -> None:
    reading = Reading()
    task = asyncio.create_task(web.api.read(telling.path, reading))
    await until(lambda: reading.events)
    await tell_all(telling)

    await asyncio.wait_for(task, 10)

    assert reading.events[0].name == "queued"
    assert reading.events[0].data == {"position": None, "eta_s": None, "tier": "free"}
    assert reading.events[0].id is None
    assert reading.text == TEXT


async def test_a_run_in_its_room_is_told_its_place_and_for_how_long(web: Web, telling: Telling, broker: Redis) -> None:
    run = telling.run
    key = drain_key(run.model_id)
    broker.hset(key, mapping={"runs": 12, "busy_ms": 60_000, "squares": 12 * 10_000 * 5_000})  # one in five seconds
    Room(broker, run.model_id, run.tier_id).release(0, strangers([uuid7(), run.pk]))
    reading = Reading()
    task = asyncio.create_task(web.api.read(telling.path, reading))
    await until(lambda: reading.events)
    place = Room(broker, run.model_id, run.tier_id).position(run.pk)
    await tell_all(telling)

    await asyncio.wait_for(task, 10)

    assert place
    assert reading.events[0].data == {"position": place, "eta_s": 5 * place, "tier": "free"}


async def test_a_run_cancelled_while_it_waited_ends_for_its_reader(web: Web, telling: Telling) -> None:
    reading = Reading()
    task = asyncio.create_task(web.api.read(telling.path, reading))
    await until(lambda: reading.events)
    await rows.ask(lambda: telling.update(status=Status.CANCELLED, finished_at=telling.run.created_at))

    await asyncio.wait_for(task, 10)

    assert [event.name for event in reading.events] == ["queued", "cancelled"]
    assert reading.last_id == f"0-{TERMINAL_SEQ}-0"
    assert await web.api.read(telling.path, Reading(last_id=reading.last_id)) == 204


async def test_a_deleted_run_ends_its_streams(web: Web, telling: Telling) -> None:
    await telling.start()
    task = asyncio.create_task(web.api.read(telling.path, Reading()))
    await asyncio.sleep(0.2)
    await rows.ask(lambda: Run.objects.filter(pk=telling.run.pk).delete())

    assert await asyncio.wait_for(task, 10) == 200


async def test_a_silent_stream_is_kept_alive(web: Web, telling: Telling, settings: LazySettings) -> None:
    settings.HEARTBEAT_S = 0.2
    await telling.start()
    parser = EventParser()

    async with asyncio.timeout(10):
        async with web.api.stream(telling.path) as answer:
            async for chunk in answer.chunks():
                parser.feed(chunk)
                if parser.comments >= 3:
                    break


async def test_every_reader_of_a_run_gets_all_of_it(
    web: Web, new_telling: Callable[[], Telling], settings: LazySettings
) -> None:
    settings.STREAMS_PER_USER = 40
    tellings = await asyncio.gather(*(rows.ask(new_telling) for _ in range(5)))
    readings = [(telling, Reading()) for telling in tellings for _ in range(8)]
    readers = [asyncio.create_task(web.api.read(telling.path, reading)) for telling, reading in readings]

    await asyncio.gather(*(tell_slowly(telling) for telling in tellings))
    await asyncio.wait_for(asyncio.gather(*readers), 20)

    assert all(reading.text == telling.text and reading.ended for telling, reading in readings)


async def tell_slowly(telling: Telling) -> None:
    await telling.start()
    for character in TEXT:
        await telling.say(character)
        await asyncio.sleep(0.005)
    await telling.end()


async def test_a_stopping_process_ends_its_streams_and_readers_resume(web: Web, telling: Telling) -> None:
    await telling.start()
    await telling.say("before ")
    reading = Reading()
    task: asyncio.Task[Any] = asyncio.create_task(web.api.read(telling.path, reading))
    await until(lambda: reading.text)

    web.application.end_streams()
    await asyncio.wait_for(task, 5)

    assert reading.ended is None
