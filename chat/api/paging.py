"""Lists by cursor: each page says where the next one begins, so that rows which come meanwhile move nothing."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from uuid import UUID

from django.db.models import Q
from rest_framework.request import Request

from chat import problems
from chat.models import Chat, ChatQuerySet, Message, User

DEFAULT_LIMIT = 50
MAX_LIMIT = 100
# Postgres' integer: a larger position is none.
MAX_POSITION = 2**31 - 1
ACTIVITY = re.compile(r"([0-9]{1,20})-([0-9a-f]{32})")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def messages(chat: Chat, request: Request) -> tuple[list[Message], str | None]:
    """The page of messages that the request asks for, and the address of the one before it.

    Raises `CursorInvalid`, `LimitInvalid`.
    """
    rows, cursor = messages_before(chat, request.query_params.get("cursor"), _limit(request))
    return rows, _next(request, cursor) if cursor else None


def messages_before(chat: Chat, cursor: str | None, limit: int) -> tuple[list[Message], str | None]:
    """The newest messages before the cursor, in reading order, and the cursor of those before them.

    Raises `CursorInvalid`.
    """
    rows = chat.messages.standing().defer("token_ids").order_by("-position")
    if cursor:
        rows = rows.filter(position__lt=_position(cursor))
    page = list(rows[: limit + 1])
    more = len(page) > limit
    return page[:limit][::-1], str(page[limit - 1].position) if more else None


def chats(user: User, request: Request) -> tuple[list[Chat], str | None]:
    """The page of chats that the request asks for, and the address of the one behind it.

    Raises `CursorInvalid`, `LimitInvalid`.
    """
    rows = Chat.objects.visible_to(user).with_live_run()
    page, cursor = chats_behind(rows, request.query_params.get("cursor"), _limit(request))
    return page, _next(request, cursor) if cursor else None


def chats_behind(chats: ChatQuerySet, cursor: str | None, limit: int) -> tuple[list[Chat], str | None]:
    """Those of the chats behind the cursor, most recently active first, and the cursor of those that follow.

    A chat that becomes active meanwhile moves to the front: it may be met twice, never missed for good.
    Raises `CursorInvalid`.
    """
    rows = chats.order_by("-updated_at", "-id")
    if cursor:
        active_at, chat_id = _activity(cursor)
        # The first condition is implied by the second; it is the one that an index can use.
        rows = rows.filter(updated_at__lte=active_at).filter(Q(updated_at__lt=active_at) | Q(id__lt=chat_id))
    page = list(rows[: limit + 1])
    more = len(page) > limit
    return page[:limit], _activity_cursor(page[limit - 1]) if more else None


def _limit(request: Request) -> int:
    given = request.query_params.get("limit", str(DEFAULT_LIMIT))
    if not _is_number(given) or not 1 <= int(given) <= MAX_LIMIT:
        raise problems.LimitInvalid(f"`limit` is a number from 1 to {MAX_LIMIT}.")
    return int(given)


def _next(request: Request, cursor: str) -> str:
    """A path: what scheme and host a client used is not always known behind proxies."""
    query = request.query_params.copy()
    query["cursor"] = cursor
    return f"{request.path}?{query.urlencode()}"


def _position(cursor: str) -> int:
    if not _is_number(cursor) or int(cursor) > MAX_POSITION:
        raise problems.CursorInvalid
    return int(cursor)


def _activity_cursor(chat: Chat) -> str:
    return f"{(chat.updated_at - EPOCH) // timedelta(microseconds=1)}-{chat.pk.hex}"


def _activity(cursor: str) -> tuple[datetime, UUID]:
    found = ACTIVITY.fullmatch(cursor)
    if found is None:
        raise problems.CursorInvalid
    try:
        return EPOCH + timedelta(microseconds=int(found[1])), UUID(hex=found[2])
    except OverflowError as error:
        raise problems.CursorInvalid from error


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 10
