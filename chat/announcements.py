"""What a user's open pages are told of the acts in their chats. Each costs one round trip to Redis."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from chat import feed
from chat.api.authentication import session_digest
from chat.models import Chat, Run, Status, User


def changed(chat: Chat) -> None:
    """A chat, as `with_live_run` reads it, was opened or renamed."""
    feed.tell(chat.owner_id, _shown(chat))


def deleted(chat_id: UUID, owner_id: UUID) -> None:
    """A chat is gone."""
    feed.tell(owner_id, feed.ChatDeleted(chat_id))


def queued(run: Run) -> None:
    """A run was queued, by which its chat is active. One query."""
    _tell_with_chat(feed.RunBegun(run.pk, run.chat_id, Status.QUEUED))


def streaming(run: Run) -> None:
    """A worker writes the run, whose chat was read with it."""
    feed.tell(run.chat.owner_id, feed.RunBegun(run.pk, run.chat_id, Status.STREAMING))


def ended(run: Run) -> None:
    """A run is over, by which its chat was active. One query."""
    _tell_with_chat(feed.RunEnded(run.pk, run.chat_id, run.status))


def signed_out(request: Any, user: User | None, **_: object) -> None:
    """A session is about to end: Django's signal."""
    if user is not None:
        feed.tell(user.pk, feed.SignedOut(session_digest(request)))


def _tell_with_chat(event: feed.RunBegun | feed.RunEnded) -> None:
    """Nothing where the chat was deleted: that was told."""
    chat = Chat.objects.with_live_run().filter(pk=event.chat_id).first()
    if chat:
        feed.tell(chat.owner_id, event, _shown(chat))


def _shown(chat: Chat) -> feed.ChatChanged:
    live_run_id: UUID | None = getattr(chat, "live_run_id", None)
    return feed.ChatChanged(chat.pk, chat.title, chat.updated_at, live_run_id)
