"""Rows that users own, and the transitions of a run."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Self
from uuid import UUID

from django.contrib.auth.models import AbstractUser
from django.db import connection, models
from django.db.models import Q
from django.db.models.functions import Now
from uuid6 import uuid7

from scheduler.models import Model, Tier

DEFAULT_TIER = "free"


class User(AbstractUser):
    """A person or a program; the tier says how much it may use."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tier = models.ForeignKey(Tier, on_delete=models.PROTECT, default=DEFAULT_TIER, related_name="users")

    def lock(self) -> None:
        """Until the transaction ends, be the only one to decide on this user's limits. Others may still refer to it."""
        User.objects.select_for_update(no_key=True).values("pk").get(pk=self.pk)


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


class ChatQuerySet(models.QuerySet["Chat"]):
    def visible_to(self, user: User) -> Self:
        """The user's own chats."""
        return self.filter(owner=user)

    def with_live_run(self) -> Self:
        """Each with `live_run_id`: the reply being produced in it, or None."""
        live = Run.objects.live().filter(kind=Run.Kind.REPLY, chat=models.OuterRef("pk")).order_by()
        return self.annotate(live_run_id=models.Subquery(live.values("pk")))


class Chat(models.Model):
    """One conversation of one user."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    # No index of its own, here and below: one that begins with the column serves the key too.
    owner = models.ForeignKey(User, on_delete=models.CASCADE, related_name="chats", db_index=False)
    title = models.CharField(max_length=200, blank=True)
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    updated_at = models.DateTimeField(db_default=Now(), editable=False, help_text="When it was last active.")

    objects = ChatQuerySet.as_manager()

    class Meta:
        indexes = (models.Index(fields=("owner", "-updated_at", "-id"), name="chat_by_recency"),)

    def __str__(self) -> str:
        return str(self.id)  # the admin shows it in lists and logs: not the title


class Role(models.TextChoices):
    """Who speaks."""

    USER = "user", "User"
    ASSISTANT = "assistant", "Assistant"


class Message(models.Model):
    """One turn. `position` orders a chat's turns: two machines' clocks may disagree."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    chat = models.ForeignKey(Chat, on_delete=models.CASCADE, related_name="messages", db_index=False)
    position = models.PositiveIntegerField()
    role = models.CharField(max_length=16, choices=Role.choices)
    content = models.TextField()
    token_count = models.PositiveIntegerField(help_text="Of the content alone, without the template around it.")
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        ordering = ("position",)
        constraints = (
            models.UniqueConstraint(fields=("chat", "position"), name="one_message_a_position"),
            models.CheckConstraint(condition=Q(role__in=Role.values), name="message_role_known"),
        )

    def __str__(self) -> str:
        return f"{self.role} {self.position}"


class Status(models.TextChoices):
    """Where a run stands. The last three are terminal and never left: a trigger refuses what TRANSITIONS lacks."""

    QUEUED = "queued", "Queued"
    STREAMING = "streaming", "Streaming"
    DONE = "done", "Done"
    CANCELLED = "cancelled", "Cancelled"
    FAILED = "failed", "Failed"

    @property
    def is_terminal(self) -> bool:
        return not TRANSITIONS[self]


TRANSITIONS: dict[Status, frozenset[Status]] = {
    Status.QUEUED: frozenset({Status.STREAMING, Status.CANCELLED, Status.FAILED}),
    # To itself: the next attempt takes over a run whose worker went silent.
    Status.STREAMING: frozenset({Status.STREAMING, Status.DONE, Status.CANCELLED, Status.FAILED}),
    Status.DONE: frozenset(),
    Status.CANCELLED: frozenset(),
    Status.FAILED: frozenset(),
}
LIVE = tuple(status for status in Status if not status.is_terminal)
TERMINAL = tuple(status for status in Status if status.is_terminal)


class RunTaken(Exception):
    """Another worker holds the run, or it has ended: acknowledge the message and drop it."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Proof that attempt `attempt` of a run is ours, until somebody claims the next."""

    run_id: UUID
    attempt: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended: its counts, and the reason.

    The first token's time is given as its age: ages need no clock that agrees with the database's.
    """

    status: Status
    finish_reason: str = ""
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    error_code: str = ""
    error_detail: str = ""
    first_token_age: timedelta | None = None

    def columns(self) -> dict[str, Any]:
        """The row's columns that the outcome sets."""
        first_token = {} if self.first_token_age is None else {"first_token_at": Now() - self.first_token_age}
        return {
            **first_token,
            "status": self.status,
            "finish_reason": self.finish_reason,
            "input_tokens": self.input_tokens,
            "cached_tokens": self.cached_tokens,
            "output_tokens": self.output_tokens,
            "error_code": self.error_code,
            "error_detail": self.error_detail,
            "finished_at": Now(),
            "lease_until": None,
        }


class RunQuerySet(models.QuerySet["Run"]):
    # One statement: precondition, fencing token and lease together, all by the database's clock.
    CLAIM = """
        UPDATE chat_run
           SET status = 'streaming', attempt = attempt + 1, worker = %(worker)s,
               lease_until = statement_timestamp() + %(lease)s,
               started_at = coalesce(started_at, statement_timestamp())
         WHERE id = %(run_id)s
           AND (status = 'queued' OR (status = 'streaming' AND lease_until < statement_timestamp()))
     RETURNING attempt
    """

    def visible_to(self, user: User) -> Self:
        """Runs of the user's own chats."""
        return self.filter(chat__owner=user)

    def live(self) -> Self:
        """Runs that have not ended."""
        return self.filter(status__in=LIVE)

    def claim(self, run_id: UUID, worker: str, lease: timedelta) -> Claim:
        """Take a queued run, or one whose worker went silent. Raises `RunTaken` when another was first."""
        values: dict[str, Any] = {"run_id": run_id, "worker": worker, "lease": lease}
        with connection.cursor() as cursor:
            cursor.execute(self.CLAIM, values)
            row = cursor.fetchone()
        if row is None:
            raise RunTaken(run_id)
        return Claim(run_id, attempt=row[0])


class Run(models.Model):
    """The producing of one assistant message, over as many attempts as it takes."""

    class Kind(models.TextChoices):
        """What is produced."""

        REPLY = "reply", "Reply"
        TITLE = "title", "Title"
        SUMMARY = "summary", "Summary"

    Status = Status

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    chat = models.ForeignKey(Chat, on_delete=models.CASCADE, related_name="runs", db_index=False)
    prompt = models.ForeignKey(
        Message, on_delete=models.CASCADE, related_name="runs", help_text="The message it answers."
    )
    answer = models.OneToOneField(
        Message,
        on_delete=models.CASCADE,
        related_name="run",
        null=True,
        blank=True,
        help_text="The message it produced; unique, so that a run cannot end with two.",
    )
    kind = models.CharField(max_length=16, choices=Kind.choices, default=Kind.REPLY)
    model = models.ForeignKey(Model, on_delete=models.PROTECT, related_name="+", db_index=False)
    tier = models.ForeignKey(
        Tier, on_delete=models.PROTECT, related_name="+", db_index=False, help_text="The user's at submission."
    )
    status = models.CharField(max_length=16, choices=Status.choices, default=Status.QUEUED)
    attempt = models.PositiveIntegerField(default=0, help_text="Claims so far; the fencing token.")
    worker = models.CharField(max_length=128, blank=True)
    lease_until = models.DateTimeField(null=True, blank=True)
    max_output_tokens = models.PositiveIntegerField()
    input_tokens = models.PositiveIntegerField(help_text="Exact, from submission on.")
    cached_tokens = models.PositiveIntegerField(default=0)
    output_tokens = models.PositiveIntegerField(default=0)
    finish_reason = models.CharField(max_length=16, blank=True)
    error_code = models.CharField(max_length=64, blank=True)
    error_detail = models.CharField(max_length=500, blank=True)
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    released_at = models.DateTimeField(null=True, blank=True, help_text="When its room let it go to a queue.")
    started_at = models.DateTimeField(null=True, blank=True, help_text="When a worker first claimed it.")
    first_token_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    objects = RunQuerySet.as_manager()

    class Meta:
        ordering = ("-id",)
        constraints = (
            models.UniqueConstraint(
                fields=("chat",), condition=Q(kind="reply", status__in=LIVE), name="one_live_reply_a_chat"
            ),
            models.CheckConstraint(condition=Q(status__in=Status.values), name="run_status_known"),
            models.CheckConstraint(
                condition=Q(status__in=TERMINAL, finished_at__isnull=False)
                | Q(status__in=LIVE, finished_at__isnull=True, answer__isnull=True),
                name="run_finished_when_terminal",
            ),
            models.CheckConstraint(
                condition=Q(status=Status.STREAMING, lease_until__isnull=False, attempt__gte=1)
                | (~Q(status=Status.STREAMING) & Q(lease_until__isnull=True)),
                name="run_leased_while_streaming",
            ),
            models.CheckConstraint(
                condition=~Q(status=Status.QUEUED) | Q(attempt=0, started_at__isnull=True), name="run_queued_untouched"
            ),
            models.CheckConstraint(
                condition=~Q(status=Status.DONE) | Q(answer__isnull=False), name="run_done_has_answer"
            ),
        )
        indexes = (
            models.Index(fields=("chat", "-id"), name="run_by_chat"),
            models.Index(fields=("status", "lease_until"), condition=Q(status__in=LIVE), name="run_live"),
        )

    def __str__(self) -> str:
        return str(self.id)

    def finish(self, attempt: int, outcome: Outcome, answer_id: UUID | None) -> bool:
        """End attempt `attempt`; False means that it is no longer ours to end.

        The answer may be inserted after this, in the same transaction: its foreign key is checked at commit.
        """
        ours = Run.objects.filter(pk=self.pk, attempt=attempt, status=Status.STREAMING)
        return bool(ours.update(answer_id=answer_id, **outcome.columns()))
