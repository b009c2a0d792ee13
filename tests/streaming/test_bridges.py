"""Readers of a live run whose stream has lost entries: bridged from its checkpoints, without waiting for its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from django.conf import LazySettings

from chat.streaming import rows
from chatsite.asgi import Application
from tests.sse_client import Api, Reading
from tests.streaming.telling import TEXT, Telling, Web, serving, until

HALF = len(TEXT) // 2
FIRST, SECOND = TEXT[:HALF], TEXT[HALF:]


@asynccontextmanager
async def reading(web: Web, telling: Telling, last_id: str | None = None, text: str = "") -> AsyncIterator[Reading]:
    """A reader who has joined, and has been told all by the time the block is left."""
    told, before = Reading(text=text, last_id=last_id), web.readers
    async with asyncio.timeout(20), asyncio.TaskGroup() as both:
        task = both.create_task(web.api.read(telling.path, told))
        await until(lambda: web.readers > before or task.done())
        yield told
    assert task.result() == 200
    assert told.ended
    assert told.text == telling.text


def names(told: Reading) -> list[str]:
    return [event.name for event in told.events if event.name != "queued"]


async def begun(telling: Telling) -> None:
    """An answer in its midst: half of it told, and put by."""
    await telling.start()
    await telling.say(FIRST)
    await telling.put_by()


async def test_a_flush_in_mid_run_is_bridged_for_who_comes_back(web: Web, telling: Telling) -> None:
    await begun(telling)
    await telling.flush()

    async with reading(web, telling, "1-1-5", TEXT[:5]) as told:
        await until(lambda: told.text == FIRST)
        await telling.say(SECOND)
        await until(lambda: told.text == TEXT)
        await telling.end()

    assert names(told) == ["delta", "delta", "done"]


async def test_a_flush_in_mid_run_is_bridged_for_a_new_reader(web: Web, telling: Telling) -> None:
    await begun(telling)
    await telling.flush()
    await telling.say(SECOND)

    async with reading(web, telling) as told:
        await until(lambda: told.text == TEXT)
        await telling.end()

    assert names(told) == ["delta", "delta", "done"]
    assert told.events[0].id == f"1-0-{HALF}"


async def test_a_flush_before_any_checkpoint_is_bridged_by_the_first(web: Web, telling: Telling) -> None:
    await telling.start()
    await telling.say(FIRST)
    await telling.flush()
    await telling.say(SECOND)

    async with reading(web, telling) as told:
        await telling.say(" More.")
        assert told.text == ""
        await telling.put_by()
        await until(lambda: told.text == telling.text)
        await telling.say(" And more.")
        await until(lambda: told.text == telling.text)
        await telling.end()

    assert names(told) == ["delta", "delta", "done"]


async def test_a_pausing_run_is_bridged_though_nothing_arrives(web: Web, telling: Telling) -> None:
    await telling.start()
    await telling.say(FIRST)
    await telling.flush()
    await telling.say(SECOND)

    async with reading(web, telling, "1-1-5", TEXT[:5]) as told:
        await telling.put_by()
        await until(lambda: told.text == TEXT)
        await telling.end()


async def test_entries_trimmed_under_a_reader_are_bridged(web: Web, telling: Telling) -> None:
    await begun(telling)
    await telling.say(SECOND)
    await telling.put_by()
    await telling.say(" More.")
    await telling.trim()

    async with reading(web, telling, "1-1-5", TEXT[:5]) as told:
        await until(lambda: told.text == telling.text)
        await telling.end()

    assert names(told) == ["delta", "delta", "done"]


async def test_a_lost_stream_is_bridged_while_the_next_attempt_goes_on(web: Web, telling: Telling) -> None:
    await begun(telling)
    await telling.say("never told")
    await telling.take_over(HALF)
    await telling.say(SECOND)
    await telling.put_by()
    await telling.flush()
    await telling.say(" More.")

    place = f"1-2-{HALF + 10}"
    async with reading(web, telling, place, FIRST + "never told") as told:
        await until(lambda: told.text == telling.text)
        await telling.end()

    assert names(told) == ["reset", "delta", "delta", "done"]
    assert told.events[0].data == {"offset": HALF}
    assert told.events[0].id == f"2-1-{HALF}"


async def test_a_zombies_entries_in_a_flushed_stream_are_passed_over(web: Web, telling: Telling) -> None:
    await begun(telling)
    await telling.take_over(HALF)
    await telling.say(SECOND)
    await telling.put_by()
    await telling.flush()
    zombie = Telling(telling.run, telling.redis, attempt=1, seq=2, text=TEXT[: HALF + 3])
    await zombie.say("from the grave")

    async with reading(web, telling) as told:
        await until(lambda: told.text == TEXT)
        await zombie.say("and again")
        await telling.say(" More.")
        await until(lambda: told.text == telling.text)
        await telling.end()

    assert names(told) == ["delta", "delta", "done"]


async def test_a_reader_whom_a_zombie_told_more_is_taken_back(web: Web, telling: Telling) -> None:
    await begun(telling)
    zombie = Telling(telling.run, telling.redis, attempt=1, seq=1, text=FIRST)
    async with reading(web, telling) as told:
        await until(lambda: told.text == FIRST)
        # The next attempt's first entries are lost before anybody reads them.
        await telling.flush()
        telling.attempt, telling.seq, telling.resumed_at = 2, 1, {"2": HALF}
        await rows.ask(lambda: telling.update(attempt=2, resumed_at=telling.resumed_at))
        await zombie.say("from the grave")
        await until(lambda: "grave" in told.text)
        await telling.say(SECOND)
        await telling.put_by()
        await until(lambda: told.text == TEXT)
        await telling.end()

    assert {"offset": HALF} in [event.data for event in told.events]


@pytest.mark.parametrize("is_away", [False, True])
async def test_readers_ahead_of_a_redis_that_lost_its_last_entries_go_on(
    web: Web, telling: Telling, is_away: bool
) -> None:
    await begun(telling)
    async with reading(web, telling) as told:
        await telling.say(SECOND)
        await until(lambda: told.text == TEXT)
        await telling.lose_last(1)
        async with reading(web, telling, *((told.last_id, TEXT) if is_away else ())) as other:
            await telling.say(" More.")
            await telling.put_by()
            await until(lambda: told.text == other.text == telling.text)
            await telling.end()

    assert "reset" not in names(told)
    assert "reset" not in names(other)


async def test_readers_beyond_what_the_next_attempt_found_are_taken_back_to_that(web: Web, telling: Telling) -> None:
    await begun(telling)
    async with reading(web, telling) as told:
        await telling.say("lost soon")
        await until(lambda: told.text.endswith("lost soon"))
        await telling.lose_last(1)
        place, beyond = told.last_id, told.text
        async with reading(web, telling, place, beyond) as other:
            await telling.take_over(HALF)
            await telling.say(SECOND)
            await telling.end()

    assert names(told) == ["started", "delta", "delta", "started", "reset", "delta", "done"]
    assert names(other) == ["started", "reset", "delta", "done"]
    assert told.events[4].data == {"offset": HALF}


async def test_an_id_far_ahead_of_the_stream_is_refused_and_a_little_ahead_is_not(web: Web, telling: Telling) -> None:
    await begun(telling)
    await rows.ask(lambda: telling.update(attempt=2))

    for place, status in {"1-4100-3": 400, "2-4100-3": 400, "1-900-3": 200, "2-30-3": 200, "2-0-3": 200}.items():
        async with web.api.stream(telling.path, place) as answer:
            assert (place, answer.status) == (place, status)


async def test_an_id_of_a_bridge_is_good_at_another_process(web: Web, telling: Telling) -> None:
    await begun(telling)
    await telling.take_over(HALF - 2)
    await telling.say(TEXT[HALF - 2 :])
    await telling.put_by()
    await telling.flush()

    first = Reading()
    task = asyncio.create_task(web.api.read(telling.path, first))
    await until(lambda: first.text == TEXT)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert first.last_id == f"2-2-{len(TEXT)}"

    async with serving(Application()) as port:
        task = asyncio.create_task(Api(port, web.key).read(telling.path, first))
        await telling.say(" More.")
        await until(lambda: first.text == telling.text)
        await telling.end()
        assert await asyncio.wait_for(task, 15) == 200

    assert names(first) == ["delta", "delta", "done"]


async def test_a_lost_reader_is_kept_alive(web: Web, telling: Telling, settings: LazySettings) -> None:
    settings.HEARTBEAT_S = 0.1
    await telling.start()
    await telling.say(FIRST)
    await telling.flush()
    await telling.say(SECOND)

    async with asyncio.timeout(10), web.api.stream(telling.path) as answer:
        beats = b""
        async for chunk in answer.chunks():
            await telling.say("more")  # entries that do not join on
            beats += chunk
            if beats.count(b": hb") >= 3:
                break

    assert b"event: delta" not in beats
