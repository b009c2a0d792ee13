"""Keys by which a request is known again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Self
from uuid import UUID

from django.db import connection, models
from django.db.models.functions import Now
from uuid6 import uuid7

from chat.models.users import User

KEPT = timedelta(days=1)
# Longer than requests take, those that meet a silent database included: one that has made nothing by then is taken for
# dead, and loses its key if it is not.
IN_FLIGHT = timedelta(seconds=30)


class IdempotencyKeyQuerySet(models.QuerySet["IdempotencyKey"]):
    # A key that is taken over gets the newcomer's id: whoever had it before can no longer settle it.
    TAKE = """
        INSERT INTO chat_idempotencykey AS taken (id, user_id, key, fingerprint, created_at)
        VALUES (%(id)s, %(user_id)s, %(key)s, %(fingerprint)s, statement_timestamp())
            ON CONFLICT (user_id, key) DO UPDATE
           SET id = excluded.id, fingerprint = excluded.fingerprint, created_at = excluded.created_at, made = NULL
         WHERE taken.created_at < statement_timestamp() - %(kept)s
            OR (taken.made IS NULL AND taken.created_at < statement_timestamp() - %(in_flight)s)
    """

    def take(self, key: IdempotencyKey) -> bool:
        """Store a new key, also in place of one whose time is over; False when it is in use, or has been."""
        columns = {"id": key.pk, "user_id": key.user_id, "key": key.key, "fingerprint": key.fingerprint}
        values: dict[str, Any] = {**columns, "kept": KEPT, "in_flight": IN_FLIGHT}
        with connection.cursor() as cursor:
            cursor.execute(self.TAKE, values)
            return bool(cursor.rowcount)

    def expired(self) -> Self:
        """Those that have been kept for long enough."""
        return self.filter(created_at__lt=Now() - KEPT)


class KeyLost(Exception):
    """The request took so long that another took its key over: what it was about to store must not be."""


class IdempotencyKey(models.Model):
    """What a user's request was sent with, so that it makes one thing however often it is sent."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+", db_index=False)
    key = models.CharField(max_length=255)
    fingerprint = models.CharField(max_length=64, help_text="Of the request, which must be the same each time.")
    made = models.UUIDField(null=True, help_text="The run or the chat; none while the request is in flight.")
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    objects = IdempotencyKeyQuerySet.as_manager()

    class Meta:
        constraints = (models.UniqueConstraint(fields=("user", "key"), name="one_use_a_key"),)
        indexes = (models.Index(fields=("created_at",), name="idempotency_key_by_age"),)

    def __str__(self) -> str:
        return str(self.id)  # not the key: its user chose it

    def settle(self, made: UUID) -> None:
        """Note what the request makes, in the transaction that stores it. Raises `KeyLost`."""
        if not self._unsettled().update(made=made):
            raise KeyLost

    def release(self) -> None:
        """Give the key back, unless something was made: the next request with it begins anew."""
        self._unsettled().delete()

    def _unsettled(self) -> models.QuerySet[IdempotencyKey]:
        return IdempotencyKey.objects.filter(pk=self.pk, made=None)
