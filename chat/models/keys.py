"""Keys for programs: whose, what for, and for how long."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Self

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.functions import RandomUUID
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils import timezone

from chat.models.users import User, read_with


class Scope(models.TextChoices):
    """What a key may be used for."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"  # to make and revoke keys


USUAL_SCOPES = (Scope.READ.value, Scope.WRITE.value)


class ApiKeyQuerySet(models.QuerySet["ApiKey"]):
    def usable(self) -> Self:
        """Keys that still open a door: not revoked, not expired, of an active user."""
        return self.filter(
            Q(expires_at__isnull=True) | Q(expires_at__gt=Now()), revoked_at__isnull=True, user__is_active=True
        )

    def with_user(self) -> Self:
        """Keys with their users, as these are read by themselves."""
        return self.select_related(*(f"user__{part}" for part in read_with()))

    def issue(
        self,
        user: User,
        name: str,
        expires_at: datetime | None = None,
        scopes: Collection[str] = USUAL_SCOPES,
    ) -> tuple[ApiKey, str]:
        """Make a key and return it with its secret, which is stored nowhere and shown this once."""
        secret = f"{ApiKey.PREFIX}{secrets.token_urlsafe(32)}"
        shown = secret[: len(ApiKey.PREFIX) + 6]
        key = self.create(
            user=user, name=name, shown=shown, digest=digest(secret), expires_at=expires_at, scopes=list(scopes)
        )
        return key, secret


class ApiKey(models.Model):
    """A credential for programs. Only its SHA-256 is kept: 256 random bits need no slow hash."""

    PREFIX = "pal_"
    # Not at each request: a key would be written as often as it is read.
    USE_NOTED_EVERY = timedelta(minutes=1)

    public_id = models.UUIDField(unique=True, db_default=RandomUUID(), editable=False)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="api_keys")
    name = models.CharField(max_length=64)
    shown = models.CharField(max_length=16, help_text="The secret's first characters, to tell keys apart.")
    digest = models.CharField(max_length=64, unique=True, editable=False)
    scopes = ArrayField(models.CharField(max_length=8, choices=Scope.choices), db_default=list(USUAL_SCOPES))
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    expires_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True, help_text="To the minute.")
    revoked_at = models.DateTimeField(null=True, blank=True)

    objects = ApiKeyQuerySet.as_manager()

    def __str__(self) -> str:
        return f"{self.name} ({self.shown}…)"

    def note_use(self) -> None:
        """Keep that it is used now; an UPDATE a minute at most, however many processes it comes to."""
        now = timezone.now()
        if self.last_used_at is None or self.last_used_at < now - self.USE_NOTED_EVERY:
            noted_before = Q(last_used_at=None) | Q(last_used_at__lt=Now() - self.USE_NOTED_EVERY)
            ApiKey.objects.filter(noted_before, pk=self.pk).update(last_used_at=Now())
            self.last_used_at = now


def digest(secret: str) -> str:
    """What is stored of an API key's secret."""
    return hashlib.sha256(secret.encode()).hexdigest()
