"""People, programs, and the keys that let programs in."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from django.contrib.auth.models import AbstractUser
from django.contrib.auth.models import UserManager as DjangoUserManager
from django.db import connection, models
from django.utils import timezone
from uuid6 import uuid7

from chatsite.database import replica
from scheduler.limits import Limits
from scheduler.models import Override, Tier

DEFAULT_TIER = "free"


def read_with() -> tuple[str, ...]:
    """What is read with who signs in or sends a key: limits, and where there is a replica, what it must have."""
    return ("tier", "override", "mark") if replica.is_set() else ("tier", "override")


class UserManager(DjangoUserManager["User"]):
    """Users with what their limits come from: who signs in or sends a key is about to be measured by them."""

    use_in_migrations = False

    def get_queryset(self) -> models.QuerySet[User]:
        """One query for all."""
        return super().get_queryset().select_related(*read_with())


class User(AbstractUser):
    """A person or a program; the tier says how much it may use."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tier = models.ForeignKey(Tier, on_delete=models.PROTECT, default=DEFAULT_TIER, related_name="users")

    objects: ClassVar[UserManager] = UserManager()

    @property
    def limits(self) -> Limits:
        """What the user may do now, by the rows as they were read."""
        return Limits.of(self.tier, _override_of(self), timezone.now())

    @property
    def mark_value(self) -> UUID | None:
        """Of the user's lists, as it was read; None where they have not changed since there are marks."""
        return self.mark.value if hasattr(self, "mark") else None

    def lock(self) -> None:
        """Until the transaction ends, be the only one to decide on this user's limits. Others may still refer to it."""
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1 FROM chat_user WHERE id = %s FOR NO KEY UPDATE", [self.pk])


def _override_of(user: User) -> Override | None:
    try:
        return user.override
    except Override.DoesNotExist:
        return None
