"""A user's API keys: made, listed and revoked."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from auditlog.context import disable_auditlog
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from chat import problems, throttles
from chat.content import is_one_line
from chat.models import ApiKey, ApiKeyQuerySet, User

# A list of more is no help to whoever looks for the one that leaked.
MAX_KEYS = 50
NAME_CHARS = 64


@dataclass(frozen=True, slots=True)
class NewKey:
    """What a key is to be called, to be good for, and until when."""

    name: str
    scopes: Collection[str]
    expires_at: datetime | None = None


def check_name(name: str) -> None:
    """Raises `ValidationError` for what is not one line of text."""
    if not is_one_line(name):
        raise ValidationError(_("A name is one line of text, without control characters."), "invalid")


def listed(user: User) -> ApiKeyQuerySet:
    """The user's keys, newest first; those that were revoked are gone."""
    return user.api_keys.filter(revoked_at=None).order_by("-pk")


def issue(user: User, wanted: NewKey) -> tuple[ApiKey, str]:
    """Make a key, and return it with its secret. Raises `TooManyKeys`, `scheduler.errors.TooManyNewKeys`."""
    throttles.new_keys().take(str(user.pk))
    # The audit log is of operators' acts.
    with transaction.atomic(), disable_auditlog():
        user.lock()
        if listed(user).count() >= MAX_KEYS:
            raise problems.TooManyKeys(MAX_KEYS)
        return ApiKey.objects.issue(user, wanted.name, wanted.expires_at, wanted.scopes)


def revoke(user: User, key_id: UUID) -> None:
    """From now on it opens nothing. Raises `NotFound` for one that is not there, or revoked already."""
    if not listed(user).filter(public_id=key_id).update(revoked_at=timezone.now()):
        raise problems.NotFound
