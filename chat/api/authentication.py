"""Who asks: the bearer of an API key, or a signed-in browser."""

from __future__ import annotations

from typing import Any

from django.contrib.auth import get_user
from django.http import HttpRequest
from rest_framework import authentication
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request

from chat import problems
from chat.models import ApiKey, User, digest

SCHEME = "bearer"


class ApiKeyAuthentication(authentication.BaseAuthentication):
    """`Authorization: Bearer <key>`. First of the classes: it gives 401 its WWW-Authenticate."""

    def authenticate(self, request: Request) -> tuple[User, ApiKey] | None:
        """The key's user and the key; None without such a header. Raises `NotAuthenticated`."""
        key = bearer_key(request.META)
        return (key.user, key) if key else None

    def authenticate_header(self, _request: Request) -> str:
        """What 401 says in WWW-Authenticate."""
        return 'Bearer realm="palaver"'


class SessionAuthentication(authentication.SessionAuthentication):
    """A signed-in browser; changes need its CSRF token."""

    def enforce_csrf(self, request: Request) -> None:
        """Raises `CsrfFailed`."""
        try:
            super().enforce_csrf(request)
        except PermissionDenied as error:
            raise problems.CsrfFailed from error


def authenticate(request: HttpRequest) -> User:
    """Who sends a request that changes nothing, for views outside DRF. Raises `NotAuthenticated`.

    Blocks: one query for a key, two for a session. An async view calls it in a thread and leaves `request.user` alone.
    """
    key = bearer_key(request.META)
    if key:
        return key.user
    user = get_user(request)
    if not isinstance(user, User):
        raise problems.NotAuthenticated
    return user


def bearer_key(headers: dict[str, Any]) -> ApiKey | None:
    """The usable key that a request bears, with its user and tier; None without one. Raises `NotAuthenticated`.

    A key that does not open is refused even where a session would: who sends one means it.
    """
    scheme, _, secret = headers.get("HTTP_AUTHORIZATION", "").partition(" ")
    if scheme.lower() != SCHEME:
        return None
    key = ApiKey.objects.usable().select_related("user__tier").filter(digest=digest(secret.strip())).first()
    if key is None:
        raise problems.NotAuthenticated("This API key is unknown, revoked or expired.")
    return key
