"""A run's Redis Stream behind django-eventstream's storage interface."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast
from uuid import UUID

from django_eventstream.event import Event
from django_eventstream.storage import EventDoesNotExist, StorageBase
from redis import Redis

from chat.streaming import connect
from chat.streaming.channels import run_of
from chat.streaming.frames import described
from inference.streams import EntryId, entry, run_key

SEQ_BITS = 32

Row = tuple[bytes, Mapping[bytes, bytes]]


def number(entry_id: EntryId) -> int:
    """An entry id as the one integer that django-eventstream wants; it grows as the ids do."""
    return entry_id.attempt << SEQ_BITS | entry_id.seq


def numbered(event_number: int) -> EntryId:
    """The reverse of `number`."""
    return EntryId(event_number >> SEQ_BITS, event_number & ((1 << SEQ_BITS) - 1))


class RunStreamStorage(StorageBase):  # type: ignore[misc]  # untyped
    """Events of a run as its worker wrote them. Only workers append: `append_event` stays refused."""

    def __init__(self, redis: Redis | None = None) -> None:
        self._redis = redis or connect.blocking_client()

    def get_events(self, channel: str, last_id: int, limit: int = 100) -> list[Event]:
        """At most `limit` events behind `last_id`; 0 is the beginning. Raises `EventDoesNotExist` when it is gone."""
        if not last_id:
            return [_event(channel, row) for row in self._range(channel, "-", limit)]
        rows = self._range(channel, str(numbered(last_id)), limit + 1)
        if not rows or EntryId.parse(rows[0][0]) != numbered(last_id):
            raise EventDoesNotExist(f"No event {last_id} in {channel}", self.get_current_id(channel))
        return [_event(channel, row) for row in rows[1:]]

    def get_current_id(self, channel: str) -> int:
        """The last event's id; 0 where there is none."""
        last = cast(list[Row], self._redis.xrevrange(run_key(_run_id(channel)), count=1))
        return number(EntryId.parse(last[0][0])) if last else 0

    def _range(self, channel: str, start: str, count: int) -> list[Row]:
        return cast(list[Row], self._redis.xrange(run_key(_run_id(channel)), min=start, count=count))


def _run_id(channel: str) -> UUID:
    run_id = run_of(channel)
    if run_id is None:
        raise ValueError(f"not a run's channel: {channel[:64]}")
    return run_id


def _event(channel: str, row: Row) -> Event:
    stored = entry(*row)
    name, data = described(stored.event)
    return Event(channel, name, dict(data), number(stored.id))
