"""People, programs, and the keys that let programs in."""

from __future__ import annotations

import hashlib
import secrets
from datetime import datetime
from typing import ClassVar, Self

from django.contrib.auth.models import AbstractUser
from django.contrib.auth.models import UserManager as DjangoUserManager
from django.db import connection, models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils import timezone
from uuid6 import uuid7

from scheduler.limits import Limits
from scheduler.models import Override, Tier

DEFAULT_TIER = "free"


class UserManager(DjangoUserManager["User"]):
    """Users with what their limits come from: who signs in or sends a key is about to be measured by them."""

    use_in_migrations = False

    def get_queryset(self) -> models.QuerySet[User]:
        """One query for all."""
        return super().get_queryset().select_related("tier", "override")


class User(AbstractUser):
    """A person or a program; the tier says how much it may use."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tier = models.ForeignKey(Tier, on_delete=models.PROTECT, default=DEFAULT_TIER, related_name="users")

    objects: ClassVar[UserManager] = UserManager()

    @property
    def limits(self) -> Limits:
        """What the user may do now, by the rows as they were read."""
        return Limits.of(self.tier, _override_of(self), timezone.now())

    def lock(self) -> None:
        """Until the transaction ends, be the only one to decide on this user's limits. Others may still refer to it."""
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1 FROM chat_user WHERE id = %s FOR NO KEY UPDATE", [self.pk])


def _override_of(user: User) -> Override | None:
    try:
        return user.override
    except Override.DoesNotExist:
        return None


class ApiKeyQuerySet(models.QuerySet["ApiKey"]):
    def usable(self) -> Self:
        """Keys that still open a door: not revoked, not expired, of an active user."""
        return self.filter(
            Q(expires_at__isnull=True) | Q(expires_at__gt=Now()), revoked_at__isnull=True, user__is_active=True
        )

    def issue(self, user: User, name: str, expires_at: datetime | None = None) -> tuple[ApiKey, str]:
        """Make a key and return it with its secret, which is stored nowhere and shown this once."""
        secret = f"{ApiKey.PREFIX}{secrets.token_urlsafe(32)}"
        shown = secret[: len(ApiKey.PREFIX) + 6]
        return self.create(user=user, name=name, shown=shown, digest=digest(secret), expires_at=expires_at), secret


class ApiKey(models.Model):
    """A credential for programs. Only its SHA-256 is kept: 256 random bits need no slow hash."""

    PREFIX = "pal_"

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="api_keys")
    name = models.CharField(max_length=64)
    shown = models.CharField(max_length=16, help_text="The secret's first characters, to tell keys apart.")
    digest = models.CharField(max_length=64, unique=True, editable=False)
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    objects = ApiKeyQuerySet.as_manager()

    def __str__(self) -> str:
        return f"{self.name} ({self.shown}…)"


def digest(secret: str) -> str:
    """What is stored of an API key's secret."""
    return hashlib.sha256(secret.encode()).hexdigest()
