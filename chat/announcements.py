"""What a user's open pages are told of the acts in their chats. Each costs one round trip to Redis."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from chat import feed
from chat.api.authentication import session_digest
from chat.models import Chat, Run, Status, User
from chatsite.database.prepared import Prepared

CHAT = Prepared(lambda chat: Chat.objects.with_live_run().filter(pk=chat), chat=UUID(int=1))


def changed(chat: Chat) -> None:
    """A chat, as `with_live_run` reads it, was opened or renamed."""
    feed.tell(chat.owner_id, _shown(chat))


def deleted(chat_id: UUID, owner_id: UUID) -> None:
    """A chat is gone."""
    feed.tell(owner_id, feed.ChatDeleted(chat_id))


def queued(run: Run) -> None:
    """A run was queued, by which its chat is active, as it was read just now."""
    chat = run.chat
    if not chat.is_kept:
        return
    shown = feed.ChatChanged(chat.pk, chat.title, chat.updated_at, live_run_id=run.pk)
    feed.tell(chat.owner_id, feed.RunBegun(run.pk, run.chat_id, Status.QUEUED), shown)


def streaming(run: Run) -> None:
    """A worker writes the run, whose chat was read with it."""
    if run.chat.is_kept:
        feed.tell(run.chat.owner_id, feed.RunBegun(run.pk, run.chat_id, Status.STREAMING))


def ended(run: Run) -> None:
    """A run is over, by which its chat was active. One query, if the chat is kept: else pages know of neither."""
    # Without one it was deleted, and that was told.
    if run.chat.is_kept and (chat := CHAT.first(chat=run.chat_id)):
        feed.tell(chat.owner_id, feed.RunEnded(run.pk, run.chat_id, run.status), _shown(chat))


def signed_out(request: Any, user: User | None, **_: object) -> None:
    """A session is about to end: Django's signal."""
    if user is not None:
        feed.tell(user.pk, feed.SignedOut(session_digest(request)))


def _shown(chat: Chat) -> feed.ChatChanged:
    live_run_id: UUID | None = getattr(chat, "live_run_id", None)
    return feed.ChatChanged(chat.pk, chat.title, chat.updated_at, live_run_id)
