"""`GET /api/events`: what a user's pages are told, to whom, and through which outages."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import zip_longest
from typing import Any
from urllib.parse import urlencode
from uuid import UUID, uuid4

import pytest
from django.conf import LazySettings
from django.conf import settings as product
from django.contrib.sessions.backends.base import SessionBase
from django.test import Client
from redis.asyncio import Redis

from chat import feed
from chat.feed import ChatChanged, ChatDeleted, RunBegun, RunEnded
from chat.models import User
from chat.streaming import feeds as feeds_module
from chat.streaming import inbox, rows
from chat.streaming.connect import feeds_client
from chat.streaming.feeds import Feeds, Told
from chat.streaming.inbox import Dropped
from chat.streaming.naming import MAX_RUNS
from chatsite.asgi import Application
from inference.streams import TERMINAL_SEQ
from tests.metering import metered
from tests.sse_client import Api, Event, Reading, request
from tests.streaming.listening import listening
from tests.streaming.telling import TEXT, Telling, Web, serving, until
from tests.streaming.test_hub import Wire
from tests.subscriptions import subscribers

CHAT, RUN = uuid4(), uuid4()
DELETED = ("chat_deleted", {"id": str(CHAT)})


async def tell(user: User, *events: feed.Event) -> None:
    """As the web tier does, from a thread."""
    await asyncio.to_thread(partial(feed.tell, user.pk, *events))


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def test_all_pages_of_a_user_are_told_and_nobody_elses(web: Web, alice: User, bob: User, bobs_key: str) -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    async with (
        listening(web.port, web.api.headers) as first,
        listening(web.port, web.api.headers) as second,
        listening(web.port, bearer(bobs_key)) as bobs,
    ):
        await tell(alice, ChatChanged(CHAT, "Grüße 世界", moment, RUN), RunBegun(RUN, CHAT, "queued"))
        await tell(alice, RunEnded(RUN, CHAT, "done"), ChatDeleted(CHAT))
        await tell(bob, RunBegun(RUN, CHAT, "streaming"))

        expected = [
            (
                "chat",
                {
                    "id": str(CHAT),
                    "title": "Grüße 世界",
                    "updated_at": "2026-01-02T03:04:05.678901Z",
                    "live_run_id": str(RUN),
                },
            ),
            ("run_begun", {"run_id": str(RUN), "chat_id": str(CHAT), "status": "queued"}),
            ("run_ended", {"run_id": str(RUN), "chat_id": str(CHAT), "status": "done"}),
            DELETED,
        ]
        assert await first.told(4) == await second.told(4) == expected
        assert await bobs.told() == [("run_begun", {"run_id": str(RUN), "chat_id": str(CHAT), "status": "streaming"})]
        assert {event.id for event in first.events} == {None}


async def test_an_event_right_after_the_opening_is_heard(web: Web, alice: User) -> None:
    for _ in range(10):
        async with listening(web.port, web.api.headers) as page:
            await tell(alice, ChatDeleted(CHAT))
            assert await page.told() == [DELETED]


async def test_headers_are_those_of_a_stream(web: Web) -> None:
    async with web.api.stream("/api/events") as answer:
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert answer.headers["cache-control"] == "no-cache, no-transform"


async def test_a_silent_feed_is_kept_alive(web: Web, settings: LazySettings) -> None:
    settings.HEARTBEAT_S = 0.1
    async with listening(web.port, web.api.headers) as page:
        assert await page.told(3) == [("hb", {})] * 3


async def test_a_feed_ends_so_that_its_credential_is_looked_at_again(web: Web, settings: LazySettings) -> None:
    settings.FEED_S = 0.2
    async with listening(web.port, web.api.headers) as page:
        await until(lambda: page.is_over)


async def test_a_stopping_process_ends_its_feeds(web: Web) -> None:
    async with listening(web.port, web.api.headers) as page:
        web.application.end_streams()
        await until(lambda: page.is_over)


# With a run


async def raw(web: Web, path: str, end: bytes) -> bytes:
    """The bytes of a stream up to and with the event that `end` is in."""
    told = b""
    async with web.api.stream(path) as answer:
        async for chunk in answer.chunks():
            told += chunk
            if end in told and told.endswith(b"\n\n"):
                break
    return told.replace(b": hb\n\n", b"")


async def tell_all(telling: Telling) -> None:
    await telling.start()
    for start in range(0, len(TEXT), 5):
        await telling.say(TEXT[start : start + 5])
        await asyncio.sleep(0.01)
    await telling.end()


async def test_a_runs_events_are_merged_in_as_they_are_with_its_id(web: Web, telling: Telling) -> None:
    by_feed = f"/api/events?run={telling.run.pk}"
    live = [asyncio.create_task(raw(web, path, b"event: done")) for path in (telling.path, by_feed)]
    await until(lambda: web.readers == 2)
    await asyncio.sleep(0.2)
    await tell_all(telling)
    whole, merged = await asyncio.wait_for(asyncio.gather(*live), 10)

    assert b"event: queued" in whole
    with_id = b'data: {"run_id":"%b",' % str(telling.run.pk).encode()
    assert merged == whole.replace(b"data: {", with_id)
    again = await raw(web, telling.path, b"event: done")
    assert await raw(web, by_feed, b"event: done") == again.replace(b"data: {", with_id)


async def test_the_feed_goes_on_beside_a_run_and_after_its_end(web: Web, alice: User, telling: Telling) -> None:
    await telling.start()
    async with listening(web.port, web.api.headers, f"/api/events?run={telling.run.pk}") as page:
        await page.told(1)
        await tell(alice, ChatDeleted(CHAT))
        await page.told(2)
        await telling.say(TEXT)
        await telling.end()
        await page.told(4)
        await tell(alice, ChatDeleted(CHAT))
        told = await page.told(5)

    assert [name for name, _ in told] == ["started", "chat_deleted", "delta", "done", "chat_deleted"]


async def test_a_reconnect_resumes_the_run_and_behind_its_end_there_is_the_feed_alone(
    web: Web, alice: User, telling: Telling
) -> None:
    await tell_all(telling)
    path = f"/api/events?run={telling.run.pk}"
    for last_id, expected in (("1-1-5", "delta"), (f"1-{TERMINAL_SEQ}-{len(TEXT)}", "chat_deleted")):
        async with listening(web.port, web.api.headers, path, last_id) as page:
            await tell(alice, ChatDeleted(CHAT))
            await until(lambda: page.events and page.events[-1].name in {"done", "chat_deleted"})
            assert page.events[0].name == expected


async def test_a_run_that_is_not_to_be_read_is_404_and_a_place_that_never_was_400(
    web: Web, telling: Telling, bobs_key: str
) -> None:
    await telling.start()
    mine, bobs = web.api.headers, bearer(bobs_key)
    for run, headers in ((telling.run.pk, bobs), (uuid4(), mine), ("x", mine), (f"{telling.run.pk}0", mine)):
        async with request(web.port, "GET", f"/api/events?run={run}", headers) as answer:
            assert (answer.status, (await answer.json())["code"]) == (404, "not_found")
    for place in ("x", "1-5000-3", "9-0-0", f"1-{TERMINAL_SEQ}-0"):
        async with web.api.stream(f"/api/events?run={telling.run.pk}", place) as answer:
            assert (answer.status, (await answer.json())["code"]) == (400, "bad_event_id")


# With several


@pytest.fixture
def tellings(new_telling: Callable[[], Telling]) -> Sequence[Telling]:
    return [new_telling() for _ in range(3)]


@dataclass
class Several:
    """What a feed said of several runs."""

    readings: dict[str, Reading] = field(default_factory=lambda: defaultdict(Reading))

    def take(self, event: Event) -> None:
        """As a browser's page does, which has each run's answer in a tab."""
        if run_id := event.data.pop("run_id", None):
            self.readings[run_id].take(event)

    @property
    def are_over(self) -> bool:
        return all(reading.ended for reading in self.readings.values())


def naming(*tellings: Telling, places: Sequence[str | None] = ()) -> str:
    named = zip_longest((str(telling.run.pk) for telling in tellings), places)
    return "/api/events?" + urlencode([("run", ":".join(filter(None, pair))) for pair in named])


async def test_several_runs_are_merged_in_and_each_is_read_whole(
    web: Web, alice: User, tellings: Sequence[Telling]
) -> None:
    several = Several()
    async with listening(web.port, web.api.headers, naming(*tellings)) as page:
        await until(lambda: web.readers == len(tellings))
        assert seats(web) == 1
        await asyncio.gather(*map(tell_all, tellings))
        await until(lambda: sum(event.name == "done" for event in page.events) == len(tellings))
        await tell(alice, ChatDeleted(CHAT))
        await until(lambda: page.events[-1].name == "chat_deleted")
        assert web.readers == 0

    for event in page.events:
        several.take(event)
    assert {run_id: reading.text for run_id, reading in several.readings.items()} == {
        str(telling.run.pk): TEXT for telling in tellings
    }
    assert several.are_over


async def test_each_run_goes_on_from_its_own_place(web: Web, tellings: Sequence[Telling]) -> None:
    first, second, over = tellings
    await asyncio.gather(*map(tell_all, tellings))
    places = ["1-1-5", None, f"1-{TERMINAL_SEQ}-{len(TEXT)}"]
    # A browser that comes back by itself names the last id of any of them.
    async with listening(web.port, web.api.headers, naming(*tellings, places=places), "1-3-15") as page:
        await until(lambda: sum(event.name == "done" for event in page.events) == 2)

    told = {
        str(telling.run.pk): [e for e in page.events if e.data["run_id"] == str(telling.run.pk)] for telling in tellings
    }
    assert [event.name for event in told[str(second.run.pk)]][:2] == ["started", "delta"]
    assert told[str(first.run.pk)][0].data["offset"] == 5
    assert told[str(over.run.pk)] == []


async def test_a_place_in_the_address_is_older_than_the_browsers_header(web: Web, telling: Telling) -> None:
    await tell_all(telling)
    for header, offset in ((None, 5), ("1-2-10", 10)):
        async with listening(web.port, web.api.headers, naming(telling, places=["1-1-5"]), header) as page:
            assert (await page.told())[0][1]["offset"] == offset


async def test_one_run_that_is_not_hers_or_one_place_that_never_was_refuses_them_all(
    web: Web, tellings: Sequence[Telling], bobs_key: str
) -> None:
    telling, other, _ = tellings
    await telling.start()
    good = naming(telling)
    assert await refused(web, f"{good}&run={uuid4()}") == (404, "not_found")
    assert await refused(web, f"{good}&run=x:1-0-0") == (404, "not_found")
    for place in ("x", "1-5000-3", "9-0-0", f"1-{TERMINAL_SEQ}-0", ":"):
        assert await refused(web, naming(other, telling, places=[None, place])) == (400, "bad_event_id")
    async with request(web.port, "GET", naming(other, telling), bearer(bobs_key)) as answer:
        assert answer.status == 404
    assert seats(web) == 0


async def test_more_runs_than_a_feed_brings_are_refused(web: Web, telling: Telling) -> None:
    named = "&".join(f"run={uuid4()}" for _ in range(MAX_RUNS))
    assert await refused(web, f"/api/events?{named}&run={telling.run.pk}") == (400, "too_many_named")
    assert await refused(web, f"/api/events?{named}") == (404, "not_found")


async def test_several_runs_are_looked_up_in_one_query(
    web: Web, tellings: Sequence[Telling], monkeypatch: pytest.MonkeyPatch
) -> None:
    with metered(monkeypatch) as costs:
        async with listening(web.port, web.api.headers, naming(*tellings)):
            pass
    assert sum("chat_run" in statement for statement in costs.statements) == 1


async def refused(web: Web, path: str) -> tuple[int, str]:
    async with web.api.stream(path) as answer:
        return answer.status, (await answer.json())["code"]


def seats(web: Web) -> int:
    assert web.application._streams
    return web.application._streams.seats.taken


async def test_it_needs_a_credential_and_takes_nothing_but_get(web: Web) -> None:
    async with request(web.port, "GET", "/api/events?run=x") as answer:
        assert (answer.status, (await answer.json())["code"]) == (401, "not_authenticated")
    async with request(web.port, "POST", "/api/events", web.api.headers, {}) as answer:
        assert answer.status == 405


# Signing out


def signed_in(user: User) -> tuple[Client, dict[str, str]]:
    client = Client()
    client.force_login(user)
    session: SessionBase = client.session
    return client, {"Cookie": f"{product.SESSION_COOKIE_NAME}={session.session_key}"}


async def test_signing_out_ends_the_feeds_of_that_session_only(web: Web, alice: User) -> None:
    here, here_cookie = await rows.ask(lambda: signed_in(alice))
    _, there_cookie = await rows.ask(lambda: signed_in(alice))
    async with (
        listening(web.port, here_cookie) as leaving,
        listening(web.port, there_cookie) as staying,
        listening(web.port, web.api.headers) as by_key,
    ):
        await rows.ask(here.logout)
        assert await leaving.told() == [("signed_out", {})]
        await until(lambda: leaving.is_over)

        await tell(alice, ChatDeleted(CHAT))
        assert await staying.told() == await by_key.told() == [DELETED]
    async with request(web.port, "GET", "/api/events", here_cookie) as answer:
        assert answer.status == 401


# Outages


async def test_a_lost_subscription_is_renewed_and_its_readers_are_told(web: Web, alice: User, redis: Redis) -> None:
    async with listening(web.port, web.api.headers) as page:
        for client_id in await subscribers(redis):
            await redis.client_kill_filter(_id=client_id)

        assert await page.told() == [("missed", {})]
        await tell(alice, ChatDeleted(CHAT))
        assert await page.told(2) == [("missed", {}), DELETED]


async def test_a_quiet_redis_is_asked_whether_it_is_there(
    web: Web, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds_module, "SILENCE_S", 0.02)
    async with listening(web.port, web.api.headers) as page:
        await asyncio.sleep(0.3)
        await tell(alice, ChatDeleted(CHAT))

        assert await page.told() == [DELETED]


async def test_a_connection_that_died_without_a_word_is_given_up(
    web: Web, alice: User, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds_module, "SILENCE_S", 0.05)
    monkeypatch.setattr(feeds_module, "REPLY_PATIENCE_S", 0.05)
    async with listening(web.port, web.api.headers) as page:
        await redis.client_pause(500)

        assert await page.told() == [("missed", {})]


async def test_a_feed_opened_while_redis_is_away_hears_when_it_is_back(
    alices_key: str, alice: User, settings: LazySettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds_module, "JOIN_PATIENCE_S", 0.1)
    settings.WHITENOISE_AUTOREFRESH = True
    streams_url = settings.STREAMS_URL
    async with Wire(streams_url) as wire:
        await wire.cut()
        settings.STREAMS_URL = wire.url
        async with serving(Application()) as port, listening(port, Api(port, alices_key).headers) as page:
            await wire.mend()
            assert await page.told() == [("missed", {})]
            settings.STREAMS_URL = streams_url
            await tell(alice, ChatDeleted(CHAT))
            assert (await page.told(2))[1] == DELETED


async def test_telling_while_redis_is_away_costs_a_line_in_the_log(
    alice: User, settings: LazySettings, caplog: pytest.LogCaptureFixture
) -> None:
    settings.STREAMS_URL = "redis://127.0.0.1:9/0"

    await tell(alice, ChatDeleted(CHAT))
    await tell(alice, ChatDeleted(CHAT))

    assert [record.getMessage() for record in caplog.records] == ["redis.away reason=ConnectionError"]


async def test_a_reader_that_does_not_read_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox, "NOTES", 3)
    user_id, other_id = uuid4(), uuid4()
    async with feeds_client() as client:
        feeds = Feeds(client)
        feeds.start()
        slow, other = await feeds.join(user_id), await feeds.join(other_id)
        for _ in range(4):
            await asyncio.to_thread(feed.tell, user_id, ChatDeleted(CHAT))
        await asyncio.to_thread(feed.tell, other_id, ChatDeleted(CHAT))

        assert isinstance(await asyncio.wait_for(other.next(), 5), Told)
        assert await slow.next() == Dropped()
        await feeds.stop()


# Costs


async def joined(feeds: Feeds, user_id: UUID) -> Any:
    async with asyncio.timeout(1):
        return await feeds.join(user_id)


async def test_a_user_costs_one_subscription_a_process_and_an_event_one_command(
    monkeypatch: pytest.MonkeyPatch, redis: Redis
) -> None:
    user_id = uuid4()
    before = len(await subscribers(redis))
    async with feeds_client() as client:
        feeds = Feeds(client)
        feeds.start()
        await joined(feeds, uuid4())  # connects
        feed.tell(user_id, ChatDeleted(CHAT))
        with metered(monkeypatch) as opening:
            first = await joined(feeds, user_id)
        with metered(monkeypatch) as another:
            second = await joined(feeds, user_id)
            feeds.leave(user_id, second)
        with metered(monkeypatch) as telling:
            feed.tell(user_id, RunBegun(RUN, CHAT, "queued"), ChatDeleted(CHAT))
            await first.next()
        with metered(monkeypatch) as leaving:
            feeds.leave(user_id, first)
            await until(lambda: feed.channel(user_id) not in feeds._channels)
            await asyncio.sleep(0.05)

        assert len(await subscribers(redis)) == before + 1
        assert opening.commands == ["SUBSCRIBE"]
        assert another.commands == []
        assert (telling.commands, telling.round_trips) == (["PUBLISH", "PUBLISH"], 1)
        assert leaving.commands == ["UNSUBSCRIBE"]
        await feeds.stop()
