"""From which database a user's lists are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast
from uuid import UUID

from django.http import HttpRequest
from rest_framework.request import Request

from chat.models import Mark, User
from chatsite.database import replica

T = TypeVar("T")


def listed(request: HttpRequest | Request, read: Callable[[], T]) -> T:
    """What `read` finds: in the replica where that has all by which its user's lists have changed, else in the primary.

    The user was read from the primary in this request, with the mark that the replica must have too. A request that
    changes things reads the primary, since the mark is from before. `read` may be called twice, and changes nothing.
    """
    if replica.is_set() and request.method in {"GET", "HEAD"}:
        try:
            with replica.reading():
                user = cast(User, request.user)
                if _mark_there(user.pk) == user.mark_value:
                    return read()
        except replica.Away:
            pass
    return read()


def _mark_there(user_id: UUID) -> UUID | None:
    return Mark.objects.filter(pk=user_id).values_list("value", flat=True).first()
