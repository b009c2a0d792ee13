"""The run's stream behind django-eventstream's own reading functions."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest
from django.conf import settings
from django.test import RequestFactory
from django_eventstream.eventrequest import EventRequest
from django_eventstream.eventstream import EventPermissionError, get_current_event_id, get_events
from django_eventstream.storage import EventDoesNotExist
from redis.asyncio import Redis

from chat.models import User
from chat.streaming.channels import RunChannelManager, channel
from chat.streaming.storage import RunStreamStorage, number, numbered
from inference.streams import TERMINAL_SEQ, EntryId, run_key
from tests.streaming.telling import TEXT, Telling


@pytest.fixture
def told(telling: Telling) -> Telling:
    """A run told to its end."""

    async def tell() -> None:
        async with Redis.from_url(settings.STREAMS_URL) as redis:
            telling.redis = redis
            await telling.start()
            for piece in (TEXT[:7], TEXT[7:]):
                await telling.say(piece)
            await telling.end()

    asyncio.run(tell())
    return telling


def asking(told: Telling, user: User, last_id: int | None) -> EventRequest:
    """django-eventstream's own reading of a request for a run's channel."""
    headers = {} if last_id is None else {"Last-Event-ID": f"{channel(told.run.pk)}:{last_id}"}
    request = RequestFactory(headers=headers).get("/")
    request.user = user
    return EventRequest(request, view_kwargs={"run_id": told.run.pk})


@pytest.mark.parametrize("entry_id", [EntryId(0, 1), EntryId(1, 0), EntryId(3, 17), EntryId(9, TERMINAL_SEQ)])
def test_an_id_survives_being_one_number(entry_id: EntryId) -> None:
    assert numbered(number(entry_id)) == entry_id


def test_numbers_grow_as_ids_do() -> None:
    ids = [EntryId(1, 0), EntryId(1, 5), EntryId(1, TERMINAL_SEQ), EntryId(2, 0), EntryId(2, 1)]

    assert [number(entry_id) for entry_id in ids] == sorted(number(entry_id) for entry_id in ids)


def test_stock_reading_resumes_behind_a_cursor(told: Telling, alice: User) -> None:
    answer = get_events(asking(told, alice, number(EntryId(1, 1))))

    events = answer.channel_items[channel(told.run.pk)]
    assert [(event.type, numbered(event.id)) for event in events] == [
        ("delta", EntryId(1, 2)),
        ("done", EntryId(1, TERMINAL_SEQ)),
    ]
    assert events[0].data == {"text": TEXT[7:], "offset": 7}


def test_stock_reading_pages(told: Telling, alice: User) -> None:
    request = asking(told, alice, number(EntryId(1, 0)))

    answer = get_events(request, limit=1)

    assert len(answer.channel_items[channel(told.run.pk)]) == 1
    assert answer.channel_more == {channel(told.run.pk)}
    assert request.channel_last_ids[channel(told.run.pk)] == number(EntryId(1, 1))


def test_stock_reading_resets_where_the_cursor_is_gone(told: Telling, alice: User) -> None:
    answer = get_events(asking(told, alice, number(EntryId(1, 77))))

    assert answer.channel_reset == {channel(told.run.pk)}
    assert answer.channel_last_ids[channel(told.run.pk)] == str(number(EntryId.terminal(1)))


def test_stock_reading_refuses_a_stranger(told: Telling, bob: User) -> None:
    with pytest.raises(EventPermissionError):
        get_events(asking(told, bob, None))


def test_the_current_id_is_the_last_entrys(told: Telling) -> None:
    name = channel(told.run.pk)

    assert get_current_event_id([name]) == f"{name}:{number(EntryId.terminal(1))}"


def test_a_stream_that_is_gone_has_no_events() -> None:
    storage, name = RunStreamStorage(), channel(uuid4())

    assert storage.get_current_id(name) == 0
    assert storage.get_events(name, 0) == []
    with pytest.raises(EventDoesNotExist):
        storage.get_events(name, number(EntryId(1, 3)))


def test_the_first_event_is_not_skipped(told: Telling) -> None:
    events = RunStreamStorage().get_events(channel(told.run.pk), 0, limit=2)

    assert [event.type for event in events] == ["started", "delta"]


def test_a_channel_of_no_run_is_nobodys(alice: User) -> None:
    manager = RunChannelManager()

    assert not any(manager.can_read_channel(alice, name) for name in ("", "run-", "run-x", f"{uuid4()}"))
    assert not manager.can_read_channel(None, channel(uuid4()))


def test_a_trimmed_stream_is_missing_its_cursor(told: Telling) -> None:
    storage, name = RunStreamStorage(), channel(told.run.pk)
    storage._redis.xtrim(run_key(told.run.pk), maxlen=1, approximate=False)

    with pytest.raises(EventDoesNotExist) as gone:
        storage.get_events(name, number(EntryId(1, 1)))
    assert gone.value.current_id == number(EntryId.terminal(1))
