"""API keys of whoever asks: by a session, or by a key with the scope `admin`."""

from __future__ import annotations

from typing import cast
from uuid import UUID

from django.shortcuts import get_object_or_404
from django.utils import timezone
from rest_framework import permissions, serializers
from rest_framework.request import Request
from rest_framework.response import Response

from chat import keyring, problems
from chat.api.authentication import Credential, HasScope
from chat.api.base import View
from chat.api.serializers import TitleField
from chat.models import USUAL_SCOPES, ApiKey, Scope, User


class NameField(TitleField):
    """What a key is called: one line of text."""

    MAX_LENGTH = keyring.NAME_CHARS

    default_error_messages = {  # noqa: RUF012  (as DRF has them)
        "blank": "A name must not be blank.",
        "too_long": f"A name has at most {MAX_LENGTH} characters.",
        "invalid": "A name is one line of text, without control characters.",
    }


class ScopesField(serializers.ListField):
    """What a key is to be good for: each scope once, however often it is named."""

    child = serializers.ChoiceField(choices=Scope.choices)

    def to_internal_value(self, data: list[str]) -> list[str]:
        """In the order that they were named."""
        return list(dict.fromkeys(super().to_internal_value(data)))


class NewKeyShape(serializers.Serializer[keyring.NewKey]):
    """`POST /api/keys`."""

    name = NameField()
    scopes = ScopesField(default=list(USUAL_SCOPES), allow_empty=False)
    expires_at = serializers.DateTimeField(default=None, allow_null=True)


class KeyShape(serializers.ModelSerializer[ApiKey]):
    """A key, without its secret."""

    id = serializers.UUIDField(source="public_id")

    class Meta:
        model = ApiKey
        fields = ("id", "name", "shown", "scopes", "created_at", "expires_at", "last_used_at")


class ManagesKeys(permissions.BasePermission):
    """A key that makes keys could otherwise outlive its own revocation."""

    def has_permission(self, request: Request, _view: object) -> bool:
        """True. Raises `ScopeMissing`."""
        Credential.of(request).require(Scope.ADMIN)
        return True


class KeyView(View):
    """What is common to the addresses of keys."""

    permission_classes = (permissions.IsAuthenticated, HasScope, ManagesKeys)


class Keys(KeyView):
    """`/api/keys`"""

    def get(self, request: Request) -> Response:
        """The user's keys, newest first; there are never more than a page has room for."""
        return Response({"results": KeyShape(keyring.listed(_user(request)), many=True).data, "next": None})

    def post(self, request: Request) -> Response:
        """Make one; its `secret` is in this answer and nowhere else."""
        key, secret = keyring.issue(_user(request), _wanted(request))
        return Response({**KeyShape(key).data, "secret": secret}, status=201)


class KeyDetail(KeyView):
    """`/api/keys/{id}`"""

    def get(self, request: Request, key_id: UUID) -> Response:
        """One key."""
        return Response(KeyShape(get_object_or_404(keyring.listed(_user(request)), public_id=key_id)).data)

    def delete(self, request: Request, key_id: UUID) -> Response:
        """Revoke it."""
        keyring.revoke(_user(request), key_id)
        return Response(status=204)


def _user(request: Request) -> User:
    return cast(User, request.user)


def _wanted(request: Request) -> keyring.NewKey:
    shape = NewKeyShape(data=request.data)
    shape.is_valid(raise_exception=True)
    wanted = keyring.NewKey(**shape.validated_data)
    if wanted.expires_at and wanted.expires_at <= timezone.now():
        raise problems.FieldInvalid("expires_at_past", "A key cannot expire before it is made.", "expires_at")
    for scope in wanted.scopes:
        Credential.of(request).require(Scope(scope))
    return wanted
