"""Runs, and their transitions."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Self
from uuid import UUID

from django.conf import settings
from django.db import connection, models
from django.db.models import F, Func, Q, Value
from django.db.models.functions import Now
from uuid6 import uuid7

from chatsite.database.prepared import Prepared, planned
from inference.streams import ENDED_TTL_S
from scheduler import prices
from scheduler.models import Model, ModelVersion, Tier
from scheduler.room import BACKGROUND

if TYPE_CHECKING:
    from chat.models.chats import Message
    from chat.models.users import User


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
CANCELLED = "cancelled"  # the finish reason of a run that was
LIVE = tuple(status for status in Status if not status.is_terminal)
TERMINAL = tuple(status for status in Status if status.is_terminal)


class RunTaken(Exception):
    """Another worker holds the run, it has ended, or it is deleted: acknowledge the message and drop it."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Proof that attempt `attempt` of a run is ours, until somebody claims the next.

    `age_s` is how old the run was when it was claimed, by the database's clock; `claimed_at` is that moment by the
    monotonic clock of this process. `version_before` is the model version of the attempt before.
    """

    run_id: UUID
    attempt: int
    age_s: float = field(default=0.0, compare=False)
    version_before: int | None = field(default=None, compare=False)
    claimed_at: float = field(default_factory=time.monotonic, compare=False)


@dataclass(frozen=True, slots=True)
class Holder:
    """The worker that holds a run, and whether it has gone silent: its lease has run out."""

    worker: str
    is_silent: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended: its counts, and the reason.

    The first token's time is given as its age: ages need no clock that agrees with the database's. What an earlier
    attempt's renewal stored of it stays. `token_ids` are those its text came in, where they are known.
    """

    status: Status
    finish_reason: str = ""
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    charged_tokens: int = 0
    error_code: str = ""
    error_detail: str = ""
    first_token_age: timedelta | None = None
    token_ids: Sequence[int] = ()


QUEUE_LOCK = 0x71756575  # any number that nobody else uses beside one of their own in this database
# A run that met so many deaths may be to blame for them, or a neighbour on the engine of one that is.
SUSPECT_FROM = 2
# By then its chat has gone on, or nobody has looked for long.
BACKGROUND_DEADLINE = timedelta(hours=1)


class RunQuerySet(models.QuerySet["Run"]):
    # One statement: precondition, fencing token and lease together, all by the database's clock. Suspects may be had
    # each at a time of its own, within three leases, so that they do not die together again.
    CLAIM = """
        UPDATE chat_run
           SET status = 'streaming', attempt = attempt + 1, worker = %(worker)s,
               version_id = coalesce(%(version)s::bigint, version_id),
               lease_until = statement_timestamp() + %(lease)s,
               started_at = coalesce(started_at, statement_timestamp())
         WHERE id = %(run_id)s
           AND (status = 'queued'
                OR (status = 'streaming' AND lease_until < statement_timestamp()
                    AND (%(is_last)s
                         OR attempt - hand_backs < %(suspect_from)s
                         OR (attempt - hand_backs < %(max_attempts)s
                             AND lease_until < statement_timestamp() - %(lease)s * 3
                                 * ((hashtextextended(id::text, attempt) & 1023) + 1) / 1024))))
     RETURNING attempt, extract(epoch FROM statement_timestamp() - created_at)::float,
               (SELECT before.version_id FROM chat_run before WHERE before.id = %(run_id)s)
    """
    # One statement, as the claim: two attempts must not write over each other's entries.
    RESUME = """
        UPDATE chat_run SET resumed_at = resumed_at || jsonb_build_object(%(attempt)s::text, %(offset)s::integer)
         WHERE id = %(run_id)s AND attempt = %(attempt)s AND status = 'streaming'
    """
    FINISH = """
        UPDATE chat_run
           SET status = %(status)s, finish_reason = %(finish_reason)s, answer_id = %(answer)s,
               input_tokens = %(input_tokens)s, cached_tokens = %(cached_tokens)s,
               output_tokens = %(output_tokens)s, charged_tokens = %(charged_tokens)s,
               error_code = %(error_code)s, error_detail = %(error_detail)s,
               first_token_at = coalesce(first_token_at, statement_timestamp() - %(first_token_age)s::interval),
               finished_at = statement_timestamp(), lease_until = NULL
         WHERE id = %(run_id)s AND attempt = %(attempt)s AND status = 'streaming'
    """
    REQUEST_CANCEL = """
        UPDATE chat_run SET cancel_requested_at = coalesce(cancel_requested_at, statement_timestamp())
         WHERE id = %(run_id)s AND status = 'streaming'
     RETURNING worker, lease_until < statement_timestamp()
    """

    def visible_to(self, user: User) -> Self:
        """Replies in the user's own chats: what runs beside them is no matter of theirs."""
        return self.filter(chat__owner=user, kind=Run.Kind.REPLY)

    def by_message(self, messages: Iterable[Message]) -> dict[UUID, Run]:
        """By message id: the run that made it, or the latest that answers it."""
        ids = [message.pk for message in messages]
        found: dict[UUID, Run] = {}
        for run in self.filter(Q(prompt__in=ids) | Q(answer__in=ids), kind=Run.Kind.REPLY).order_by("id"):
            found |= {message_id: run for message_id in (run.prompt_id, run.answer_id) if message_id}
        return found

    def live(self) -> Self:
        """Runs that have not ended."""
        return self.filter(status__in=LIVE)

    def with_stream(self) -> Self:
        """Ended runs whose stream may still be there."""
        return self.filter(finished_at__gt=Now() - timedelta(seconds=ENDED_TTL_S))

    def claim(
        self, run_id: UUID, worker: str, lease: timedelta, *, version: int | None = None, is_last: bool = False
    ) -> Claim:
        """Take a queued run, or one whose worker went silent. Raises `RunTaken` when another was first.

        `version` is the model version that serves it, where one is to.
        One that too many workers died with is only there to be ended, by a claim that is its last, and one that several
        died with is not to be had before its time.
        """
        limits = {"is_last": is_last, "max_attempts": settings.MAX_ATTEMPTS, "suspect_from": SUSPECT_FROM}
        values: dict[str, Any] = {"run_id": run_id, "worker": worker, "lease": lease, "version": version, **limits}
        with planned() as cursor:
            cursor.execute(self.CLAIM, values)
            row = cursor.fetchone()
        if row is None:
            raise RunTaken(run_id)
        return Claim(run_id, *row)

    def claimed(self, claim: Claim) -> Run:
        """The run with what an attempt needs to know of it. Raises `RunTaken` when it was deleted meanwhile."""
        run = CLAIMED.first(run=claim.run_id)
        if run is None:
            raise RunTaken(claim.run_id)
        return run

    def finish(self, claim: Claim, outcome: Outcome, answer_id: UUID | None) -> bool:
        """End a claimed run; False when it is no longer ours to end."""
        counts = {field.name: getattr(outcome, field.name) for field in fields(outcome)}
        with planned() as cursor:
            cursor.execute(
                self.FINISH, {**counts, "run_id": claim.run_id, "attempt": claim.attempt, "answer": answer_id}
            )
            return bool(cursor.rowcount)

    def resume(self, claim: Claim, offset: int) -> bool:
        """Note where an attempt goes on: what readers hold beyond `offset` is void. False when it is no longer ours."""
        values: dict[str, Any] = {"run_id": claim.run_id, "attempt": claim.attempt, "offset": offset}
        with connection.cursor() as cursor:
            cursor.execute(self.RESUME, values)
            return bool(cursor.rowcount)

    def hold_queue(self, model: Model) -> None:
        """Until the transaction ends, be the only one to decide whether another run may wait for the model."""
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", [QUEUE_LOCK, model.pk])

    def overdue(self) -> Self:
        """Runs that have waited for a worker for longer than their tier has it; background runs have longer."""
        deadline = F("tier__queue_deadline_s") * Value(timedelta(seconds=1), models.DurationField())
        is_reply = Q(kind=Run.Kind.REPLY)
        is_late = (is_reply & Q(created_at__lt=Now() - deadline)) | (
            ~is_reply & Q(created_at__lt=Now() - BACKGROUND_DEADLINE)
        )
        return self.filter(is_late, status=Status.QUEUED)

    def expire_queued(self, run_id: UUID, code: str, detail: str) -> bool:
        """End a run that no worker has taken as failed; False when one has, or when it is over."""
        failed = {"status": Status.FAILED, "finish_reason": "error", "error_code": code, "error_detail": detail}
        return bool(self.filter(pk=run_id, status=Status.QUEUED).update(**failed, finished_at=Now()))

    def abandoned(self) -> Self:
        """Streaming runs whose worker has gone silent.

        None in the first `LEASE_S` seconds of a database: leases that ran out while it was away are renewed then.
        """
        up_since = Func(function="pg_postmaster_start_time", output_field=models.DateTimeField())
        is_long_up = {"up_since__lt": Now() - timedelta(seconds=settings.LEASE_S)}
        return self.alias(up_since=up_since).filter(**is_long_up, status=Status.STREAMING, lease_until__lt=Now())

    def unheld(self, run_ids: Iterable[UUID]) -> list[UUID]:
        """Those of the runs that no worker has: queued ones, and those whose lease has run out."""
        is_unheld = Q(status=Status.QUEUED) | Q(status=Status.STREAMING, lease_until__lt=Now())
        return [*self.filter(is_unheld, pk__in=run_ids).values_list("pk", flat=True)]

    def ended_between(self, since: datetime, until: datetime) -> Self:
        """Runs that ended then."""
        return self.filter(status__in=TERMINAL, finished_at__range=(since, until))

    def cancel_queued(self, run_id: UUID) -> bool:
        """End a run that no worker has taken; False when one has, or when it is over."""
        queued = self.filter(pk=run_id, status=Status.QUEUED)
        ends = {"status": Status.CANCELLED, "finish_reason": CANCELLED, "finished_at": Now()}
        return bool(queued.update(**ends, cancel_requested_at=Now()))

    def request_cancel(self, run_id: UUID) -> Holder | None:
        """Leave word that a streaming run shall stop: whoever claims it from now on sees it. None when it streams not.

        Whoever holds it learns of it when it renews its lease, if nobody tells it before.
        """
        with connection.cursor() as cursor:
            cursor.execute(self.REQUEST_CANCEL, {"run_id": run_id})
            row = cursor.fetchone()
        return Holder(*row) if row else None


def room_tier(tier: str, kind: str) -> str:
    """Among whom a run of the kind waits whose user has that tier."""
    return tier if kind == Run.Kind.REPLY else BACKGROUND


class Run(models.Model):
    """The producing of one assistant message, over as many attempts as it takes."""

    class Kind(models.TextChoices):
        """What is produced."""

        REPLY = "reply", "Reply"
        TITLE = "title", "Title"
        SUMMARY = "summary", "Summary"

    Status = Status

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    chat = models.ForeignKey("chat.Chat", on_delete=models.CASCADE, related_name="runs", db_index=False)
    # Its chat's owner, put there by a trigger. With a join, a count of a user's live runs grew with those of others.
    user_id = models.UUIDField(null=True, editable=False)
    prompt = models.ForeignKey(
        "chat.Message", on_delete=models.CASCADE, related_name="runs", help_text="The message it answers."
    )
    answer = models.OneToOneField(
        "chat.Message",
        on_delete=models.CASCADE,
        related_name="run",
        null=True,
        blank=True,
        help_text="The message it produced; unique, so that a run cannot end with two.",
    )
    kind = models.CharField(max_length=16, choices=Kind.choices, default=Kind.REPLY)
    model = models.ForeignKey(Model, on_delete=models.PROTECT, related_name="+", db_index=False)
    version = models.ForeignKey(
        ModelVersion,
        on_delete=models.PROTECT,
        related_name="+",
        null=True,
        blank=True,
        db_index=False,
        help_text="Of its model: which served it.",
    )
    tier = models.ForeignKey(
        Tier, on_delete=models.PROTECT, related_name="+", db_index=False, help_text="The user's at submission."
    )
    status = models.CharField(max_length=16, choices=Status.choices, default=Status.QUEUED)
    attempt = models.PositiveIntegerField(default=0, help_text="Claims so far; the fencing token.")
    # Defaults of the database too: while a release is rolled out, the one before still inserts rows.
    hand_backs = models.PositiveIntegerField(
        default=0, db_default=0, help_text="Attempts that ended for no fault of anybody's."
    )
    resumed_at = models.JSONField(
        default=dict,
        db_default=Value({}, models.JSONField()),
        blank=True,
        help_text="By attempt, from the second on: the offset from which it went on.",
    )
    worker = models.CharField(max_length=128, blank=True)
    lease_until = models.DateTimeField(null=True, blank=True)
    cancel_requested_at = models.DateTimeField(null=True, blank=True)
    max_output_tokens = models.PositiveIntegerField()
    # Which tokens its prompt is made of: the web counts them, its worker builds them.
    epoch = models.PositiveIntegerField(
        default=0, db_default=0, help_text="Of the summary that its prompt begins with; 0 without one."
    )
    first_position = models.PositiveIntegerField(
        default=1, db_default=1, help_text="Of the first message that is in its prompt word for word."
    )
    left_out = models.PositiveIntegerField(
        default=0, db_default=0, help_text="Messages that neither its prompt nor the summary in it has: no room."
    )
    warm_worker = models.CharField(
        max_length=128,
        blank=True,
        default="",
        db_default="",
        help_text="Whose prefix cache had its prompt's beginning.",
    )
    warm_tokens = models.PositiveIntegerField(
        default=0, db_default=0, help_text="As many of them, by the rows, beyond the system prompt."
    )
    route = models.JSONField(
        null=True, blank=True, help_text="Why it was sent to its warm worker, or to all: see scheduler/routing.py."
    )
    auto = models.JSONField(
        null=True,
        blank=True,
        editable=False,
        help_text="Why Auto chose its model, where it did: see scheduler/auto.py.",
    )
    wishes = models.JSONField(
        default=dict,
        db_default=Value({}, models.JSONField()),
        blank=True,
        editable=False,
        help_text="Of the program that asked: see chat/wishes.py.",
    )
    input_tokens = models.PositiveIntegerField(help_text="Exact, from submission on.")
    cached_tokens = models.PositiveIntegerField(default=0)
    output_tokens = models.PositiveIntegerField(default=0)
    charged_tokens = models.PositiveIntegerField(
        default=0, db_default=0, help_text="What its end took from the user's budget."
    )
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
                condition=~Q(status=Status.DONE, kind="reply") | Q(answer__isnull=False), name="reply_done_has_answer"
            ),
            models.CheckConstraint(
                condition=Q(kind="reply") | Q(answer__isnull=True, charged_tokens=0), name="background_run_is_free"
            ),
            # Another may follow one that no worker had time for.
            models.UniqueConstraint(
                fields=("chat",),
                condition=Q(kind="title") & (Q(attempt__gt=0) | Q(status__in=LIVE)),
                name="one_title_run_a_chat",
            ),
            models.UniqueConstraint(
                fields=("chat",), condition=Q(kind="summary", status__in=LIVE), name="one_live_summary_a_chat"
            ),
        )
        indexes = (
            models.Index(fields=("chat", "-id"), name="run_by_chat"),
            models.Index(fields=("status", "lease_until"), condition=Q(status__in=LIVE), name="run_live"),
            models.Index(fields=("finished_at",), condition=Q(status__in=TERMINAL), name="run_by_end"),
            models.Index(
                fields=("model", "tier"), condition=Q(status=Status.QUEUED, kind="reply"), name="reply_waiting"
            ),
            models.Index(fields=("user_id",), condition=Q(status__in=LIVE, kind="reply"), name="live_reply_by_user"),
            models.Index(fields=("id",), condition=Q(status=Status.QUEUED), name="run_queued"),
        )

    def __str__(self) -> str:
        return str(self.id)

    @property
    def room_tier(self) -> str:
        """Among whom it waits: those of its tier, or the background runs of all."""
        return room_tier(self.tier_id, self.kind)

    @property
    def cost(self) -> int:
        """The most tokens that it may be charged."""
        return prices.cost(self.input_tokens, self.max_output_tokens)

    @property
    def drawn(self) -> int:
        """What its end took of the share of its room; of its user's budget too, if it is a reply."""
        if self.kind == self.Kind.REPLY or not Status(self.status).is_terminal:
            return self.charged_tokens
        counts = self.input_tokens, self.cached_tokens, self.output_tokens
        return prices.charge(*counts, self.model.cached_token_percent)

    @property
    def resumptions(self) -> dict[int, int]:
        """`resumed_at` by number: JSON's keys are strings."""
        return {int(attempt): offset for attempt, offset in self.resumed_at.items()}

    def finish(self, attempt: int, outcome: Outcome, answer_id: UUID | None) -> bool:
        """End attempt `attempt`; False means that it is no longer ours to end.

        The answer may be inserted after this, in the same transaction: its foreign key is checked at commit.
        """
        return Run.objects.finish(Claim(self.pk, attempt), outcome, answer_id)


CLAIMED = Prepared(lambda run: Run.objects.select_related("model", "prompt", "chat").filter(pk=run), run=UUID(int=1))


class DeletedRun(models.Model):
    """What a run of a deleted chat is charged: its reservation outlives its row by a moment.

    Swept away once no reservation can be left.
    """

    id = models.UUIDField(primary_key=True, editable=False)
    charged_tokens = models.PositiveIntegerField()
    deleted_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        indexes = (models.Index(fields=("deleted_at",), name="deleted_run_by_age"),)

    def __str__(self) -> str:
        return str(self.id)
