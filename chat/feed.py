"""What a user's open pages are told of their chats: hints, each once, to whoever listens at that moment."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar
from uuid import UUID

from django.conf import settings
from rest_framework.utils.encoders import JSONEncoder

from inference import servers
from scheduler.dispensable import shared

JSON = JSONEncoder(ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class ChatChanged:
    """A chat was opened or renamed, or is active."""

    name: ClassVar = "chat"
    id: UUID
    title: str
    updated_at: datetime
    live_run_id: UUID | None


@dataclass(frozen=True, slots=True)
class ChatDeleted:
    """A chat is gone."""

    name: ClassVar = "chat_deleted"
    id: UUID


@dataclass(frozen=True, slots=True)
class RunBegun:
    """A run was queued, or is being written."""

    name: ClassVar = "run_begun"
    run_id: UUID
    chat_id: UUID
    status: str


@dataclass(frozen=True, slots=True)
class RunEnded:
    """A run is over."""

    name: ClassVar = "run_ended"
    run_id: UUID
    chat_id: UUID
    status: str


@dataclass(frozen=True, slots=True)
class SignedOut:
    """A session is over, known by its digest; pages that were opened with it are told, and nobody else is."""

    name: ClassVar = "signed_out"
    session: str


Event = ChatChanged | ChatDeleted | RunBegun | RunEnded | SignedOut


def channel(user_id: UUID) -> str:
    """The Redis channel of a user's feed."""
    return f"feed:{user_id}"


def tell(user_id: UUID, *events: Event) -> None:
    """Tell a user's open pages, in one round trip. Never raises for Redis: pages fetch the list when they come back."""
    redis = shared(settings.STREAMS_URL)

    def publish() -> None:
        servers.publish(redis.client, channel(user_id), map(written, events))

    redis.ask(publish, otherwise=None)


def written(event: Event) -> str:
    """An event as it goes through Redis."""
    return JSON.encode([event.name, {field: getattr(event, field) for field in event.__slots__}])


def read(message: bytes) -> tuple[str, Mapping[str, Any]]:
    """The name and data of an event. Raises `ValueError` for what is none."""
    name, data = json.loads(message)
    return str(name), dict(data)
