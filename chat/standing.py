"""How a chat and its owner stand, which decides whether another question may be asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self
from uuid import UUID

from django.db.models import Count, IntegerField, OuterRef, Subquery, Value
from django.db.models.functions import Coalesce

from chat import problems
from chat.models import Chat, Message, Run, User
from scheduler.errors import TooManyRuns
from scheduler.models import Tier


@dataclass(frozen=True, slots=True)
class Standing:
    """Read in one statement, hence of one moment: an answer is there if and only if its run is no longer live."""

    live_run_id: UUID | None
    last_position: int
    live_runs: int

    @classmethod
    def of(cls, user: User, chat: Chat) -> Self:
        """How they stand now. Raises `NotFound` when the chat is gone."""
        row = (
            Chat.objects.filter(pk=chat.pk)
            .with_live_run()
            .annotate(
                last_position=Coalesce(_last_position(), Value(0)), live_runs=Coalesce(_live_runs(user), Value(0))
            )
            .values("live_run_id", "last_position", "live_runs")
            .first()
        )
        if row is None:
            raise problems.NotFound
        return cls(**row)

    def check(self, tier: Tier) -> None:
        """Raises `ChatBusy`, `TooManyRuns`. To be sure of it, hold the user's lock."""
        if self.live_run_id:
            raise problems.ChatBusy(run_id=str(self.live_run_id))
        if self.live_runs >= tier.concurrency:
            raise TooManyRuns(tier.concurrency)


def _last_position() -> Subquery:
    messages = Message.objects.filter(chat=OuterRef("pk")).order_by("-position")
    return Subquery(messages.values("position")[:1])


def _live_runs(user: User) -> Subquery:
    runs = Run.objects.live().filter(chat__owner=user, kind=Run.Kind.REPLY).order_by()
    # Grouped by a constant: Django has no other way to count in a subquery.
    counted = runs.annotate(all=Value(1)).values("all").annotate(count=Count("pk"))
    return Subquery(counted.values("count"), output_field=IntegerField())
