"""Lists by cursor: each page says where the next one begins, so that rows which come meanwhile move nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from django.db.models import Q
from rest_framework.request import Request

from chat import problems
from chat.models import Chat, Message, User

DEFAULT_LIMIT = 50
MAX_LIMIT = 100
# Postgres' integer: a larger position is none.
MAX_POSITION = 2**31 - 1
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def messages(chat: Chat, request: Request) -> tuple[list[Message], str | None]:
    """The newest messages before the cursor, in reading order, and the address of those before them.

    Raises `CursorInvalid`, `LimitInvalid`.
    """
    rows = chat.messages.order_by("-position")
    if cursor := request.query_params.get("cursor"):
        rows = rows.filter(position__lt=_position(cursor))
    limit = _limit(request)
    page = list(rows[: limit + 1])
    more = len(page) > limit
    return page[:limit][::-1], _next(request, str(page[limit - 1].position)) if more else None


def chats(user: User, request: Request) -> tuple[list[Chat], str | None]:
    """The user's chats behind the cursor, most recently active first, and the address of those that follow.

    A chat that becomes active meanwhile moves to the front: it may be met twice, never missed for good.
    Raises `CursorInvalid`, `LimitInvalid`.
    """
    rows = Chat.objects.visible_to(user).with_live_run().order_by("-updated_at", "-id")
    if cursor := request.query_params.get("cursor"):
        active_at, chat_id = _activity(cursor)
        # The first condition is implied by the second; it is the one that an index can use.
        rows = rows.filter(updated_at__lte=active_at).filter(Q(updated_at__lt=active_at) | Q(id__lt=chat_id))
    limit = _limit(request)
    page = list(rows[: limit + 1])
    more = len(page) > limit
    return page[:limit], _next(request, _activity_cursor(page[limit - 1])) if more else None


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
    micros, _, chat_id = cursor.partition("-")
    try:
        return EPOCH + timedelta(microseconds=int(micros)), UUID(hex=chat_id)
    except (ValueError, OverflowError) as error:
        raise problems.CursorInvalid from error


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 10
