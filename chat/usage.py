"""What a user has used and may still use: the ledger's day, the budget's level, the runs of now."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Self

from django.db.models import Count, Sum
from django.db.models.functions import Coalesce
from django.utils import timezone

from chat import accounting
from chat.models import Chat, Run, Status, User
from scheduler.budgets import Level
from scheduler.models import COUNTS, LedgerEntry


@dataclass(frozen=True, slots=True)
class Budget:
    """A user's budget as it is now."""

    level: Level
    full_at: datetime
    percent: int  # of it that is left

    @classmethod
    def of(cls, user: User) -> Self:
        """One round trip to Redis; a full one while that is away."""
        level = accounting.buckets().level(user.pk, user.limits)
        share = 100 * level.tokens // max(1, user.limits.budget_tokens)
        return cls(level, timezone.now() + timedelta(seconds=level.full_in_s), share)


@dataclass(frozen=True, slots=True)
class Day:
    """The ledger of one user's day (UTC): an entry for each model that a worker ran for them."""

    day: date
    entries: list[LedgerEntry]

    @classmethod
    def today(cls, user: User) -> Self:
        """One query."""
        day = timezone.now().astimezone(UTC).date()
        entries = LedgerEntry.objects.filter(user=user, day=day).select_related("model")
        return cls(day, list(entries.order_by("model_id")))

    @property
    def total(self) -> dict[str, int]:
        """The sum of all models."""
        return {name: sum(getattr(entry, name) for entry in self.entries) for name in COUNTS}


def of_chat(chat: Chat) -> dict[str, int]:
    """What a chat's replies took since it was opened; the cached tokens are among those of the input. One query."""
    counted = {name: Coalesce(Sum(name), 0) for name in COUNTS if name != "runs"}
    return Run.objects.filter(chat=chat, kind=Run.Kind.REPLY).order_by().aggregate(runs=Count("pk"), **counted)


def live_replies(user: User) -> dict[str, int]:
    """How many by status, of the runs that count towards the user's concurrency. One query."""
    replies = Run.objects.live().visible_to(user).order_by()
    found = dict(replies.values_list("status").annotate(Count("pk")))
    return {name: found.get(status, 0) for name, status in (("running", Status.STREAMING), ("queued", Status.QUEUED))}


def own_limits_until(user: User) -> datetime | None:
    """When limits that are the user's own end; None for who has the tier's."""
    override = getattr(user, "override", None)
    return override.until if override and override.is_in_force(timezone.now()) else None
