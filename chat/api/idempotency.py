"""`Idempotency-Key`: a request that is sent again is answered again, and done once."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar, cast
from uuid import UUID

from django.db import InterfaceError, OperationalError
from rest_framework.request import Request
from rest_framework.response import Response

from chat import problems
from chat.connections import given_back
from chat.models import IdempotencyKey, User

HEADER = "Idempotency-Key"
PRINTABLE = re.compile(r"[ -~]{1,255}")

Answer = TypeVar("Answer")


def once(
    request: Request, act: Callable[[IdempotencyKey | None], Response], again: Callable[[UUID], Response]
) -> Response:
    """What `act` answers; for a request that came before, what `again` does, told what that one made.

    `act` settles the key in the transaction that stores what it makes. Without the header it gets none.
    Raises `IdempotencyKeyInvalid`, `IdempotencyKeyReused`, `IdempotencyInFlight`, and what the two raise.
    """
    key = _key(request)
    return act(None) if key is None else done_once(key, act, lambda made: _replayed(again(made)))


def done_once(key: IdempotencyKey, act: Callable[[IdempotencyKey], Answer], again: Callable[[UUID], Answer]) -> Answer:
    """What `act` returns, or what `again` does where the key came before; both as `once` has them, and raising so."""
    return _first(key, act) if IdempotencyKey.objects.take(key) else again(_made(key))


def _replayed(response: Response) -> Response:
    response["Idempotent-Replayed"] = "true"
    return response


def _key(request: Request) -> IdempotencyKey | None:
    name = request.headers.get(HEADER)
    if name is None:
        return None
    if not PRINTABLE.fullmatch(name):
        raise problems.IdempotencyKeyInvalid
    return IdempotencyKey(user=cast(User, request.user), key=name, fingerprint=_fingerprint(request))


def _fingerprint(request: Request) -> str:
    """What makes two requests the same: not how their JSON was written."""
    parts = [request.method, request.path, request.data]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _first(key: IdempotencyKey, act: Callable[[IdempotencyKey], Answer]) -> Answer:
    try:
        with given_back():  # a connection that broke is not the one to release the key by
            return act(key)
    except BaseException:
        # With the database away it goes when its time in flight is over.
        with suppress(OperationalError, InterfaceError):
            key.release()
        raise


def _made(key: IdempotencyKey) -> UUID:
    """What the first request with the key made. Raises `IdempotencyKeyReused`, `IdempotencyInFlight`."""
    first = IdempotencyKey.objects.filter(user=key.user, key=key.key).first()
    if first and first.fingerprint != key.fingerprint:
        raise problems.IdempotencyKeyReused
    if not first or first.made is None:  # refused since we asked, or not over
        raise problems.IdempotencyInFlight
    return first.made
