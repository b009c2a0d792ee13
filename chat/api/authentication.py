"""Who asks: the bearer of an API key, or a signed-in browser."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, cast

from django.contrib.auth import get_user
from django.http import HttpRequest
from rest_framework import authentication, permissions
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request

from chat import problems
from chat.models import ApiKey, Scope, User, digest
from chatsite.database.prepared import Prepared

if TYPE_CHECKING:
    from rest_framework.views import APIView  # which imports this module, by its name in the settings

SCHEME = "bearer"
KEY = Prepared(
    lambda digest: ApiKey.objects.usable().with_user().filter(digest=digest),
    digest="of a key",
)


@dataclass(frozen=True, slots=True)
class Credential:
    """What a request was let in by: a user's key, or a session, known by the digest of its key."""

    user: User
    key: ApiKey | None = None
    session: str = ""

    @classmethod
    def of(cls, request: Request) -> Self:
        """The credential of an authenticated request."""
        key = request.auth if isinstance(request.auth, ApiKey) else None
        return cls(cast(User, request.user), key, "" if key else session_digest(request))

    def require(self, scope: Scope) -> None:
        """See that it is good for that; a session is good for all. Raises `ScopeMissing`."""
        if self.key and scope not in self.key.scopes:
            raise problems.ScopeMissing(scope)

    @property
    def name(self) -> str:
        """What tells it from all others, and opens nothing."""
        return f"key:{self.key.digest}" if self.key else f"session:{self.session}"


def session_digest(request: HttpRequest | Request) -> str:
    """What a session may be called where its key must not be seen."""
    return digest(request.session.session_key or "")


class ApiKeyAuthentication(authentication.BaseAuthentication):
    """`Authorization: Bearer <key>`. First of the classes: it gives 401 its WWW-Authenticate."""

    def authenticate(self, request: Request) -> tuple[User, ApiKey] | None:
        """The key's user and the key; None without such a header. Raises `NotAuthenticated`."""
        key = bearer_key(request.META)
        return (key.user, key) if key else None

    def authenticate_header(self, _request: Request) -> str:
        """What 401 says in WWW-Authenticate."""
        return 'Bearer realm="palaver"'


class HasScope(permissions.BasePermission):
    """A key reads with the scope `read`, and changes things with `write`."""

    def has_permission(self, request: Request, _view: APIView) -> bool:
        """True. Raises `ScopeMissing`."""
        is_reading = request.method in permissions.SAFE_METHODS
        Credential.of(request).require(Scope.READ if is_reading else Scope.WRITE)
        return True


class SessionAuthentication(authentication.SessionAuthentication):
    """A signed-in browser; changes need its CSRF token."""

    def enforce_csrf(self, request: Request) -> None:
        """Raises `CsrfFailed`."""
        try:
            super().enforce_csrf(request)
        except PermissionDenied as error:
            raise problems.CsrfFailed from error


def authenticate(request: HttpRequest) -> Credential:
    """Who sends a request that changes nothing, and by what, for views outside DRF.

    Raises `NotAuthenticated`, `ScopeMissing`. Blocks: one query for a key, two for a session. An async view calls it in
    a thread and leaves `request.user` alone.
    """
    key = bearer_key(request.META)
    if key:
        credential = Credential(key.user, key)
        credential.require(Scope.READ)
        return credential
    user = get_user(request)
    if not isinstance(user, User):
        raise problems.NotAuthenticated
    return Credential(user, session=session_digest(request))


def bearer_key(headers: dict[str, Any]) -> ApiKey | None:
    """The usable key that a request bears, with its user and their limits; None without one. Raises `NotAuthenticated`.

    A key that does not open is refused even where a session would: who sends one means it.
    """
    scheme, _, secret = headers.get("HTTP_AUTHORIZATION", "").partition(" ")
    if scheme.lower() != SCHEME:
        return None
    key = KEY.first(digest=digest(secret.strip()))
    if key is None:
        raise problems.NotAuthenticated("This API key is unknown, revoked or expired.")
    key.note_use()
    return key
