"""Filters of the list of runs: how old, and whose worker."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib import admin
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest
from django.utils import timezone

from chat.models import LIVE, Run
from inference import reports
from scheduler.dispensable import shared

# Of web processes and the database: ids are made by the clocks of the former.
CLOCKS_APART = timedelta(minutes=5)
LIVE_FOR = {
    "live-minute": ("waiting or writing for over a minute", timedelta(minutes=1)),
    "live-ten-minutes": ("… for over ten minutes", timedelta(minutes=10)),
    "live-hour": ("… for over an hour", timedelta(hours=1)),
}
ASKED_WITHIN = {
    "asked-hour": ("asked within the last hour", timedelta(hours=1)),
    "asked-day": ("… the last day", timedelta(days=1)),
    "asked-week": ("… the last week", timedelta(weeks=1)),
}


class AgeFilter(admin.SimpleListFilter):
    """Both read the rows that they find and no others: live runs have an index, and ids are in the order of time."""

    title = "age"
    parameter_name = "age"

    def lookups(self, _request: HttpRequest, _model_admin: Any) -> Iterable[tuple[str, str]]:
        """The choices."""
        return [(value, label) for value, (label, _) in (LIVE_FOR | ASKED_WITHIN).items()]

    def queryset(self, _request: HttpRequest, runs: QuerySet[Run]) -> QuerySet[Run]:
        """All of them for an unknown choice."""
        value = self.value() or ""
        if value in LIVE_FOR:
            return runs.filter(status__in=LIVE, created_at__lt=Now() - LIVE_FOR[value][1])
        if value in ASKED_WITHIN:
            age = ASKED_WITHIN[value][1]
            return runs.filter(pk__gte=first_id(timezone.now() - age - CLOCKS_APART), created_at__gte=Now() - age)
        return runs


def first_id(at: datetime) -> UUID:
    """The least id that may be made then: the first 48 bits of a UUIDv7 are its time in milliseconds (RFC 9562)."""
    return UUID(int=int(at.timestamp() * 1000) << 80)


class WorkerFilter(admin.SimpleListFilter):
    """Offers the workers that report and those of the latest runs; the address takes any name.

    Runs have no index by worker: they are read from the latest on until the page is full, and until enough of them are
    counted. Of a worker that took few, that is the whole table: with an age as well it is not.
    """

    title = "worker"
    parameter_name = "worker"
    LATEST = 1000

    def lookups(self, _request: HttpRequest, _model_admin: Any) -> Iterable[tuple[str, str]]:
        """Their names, and the one that is asked for."""
        asked_for = self.value()
        return [(name, name) for name in sorted({*_reporting(), *_latest(), *([asked_for] if asked_for else [])})]

    def queryset(self, _request: HttpRequest, runs: QuerySet[Run]) -> QuerySet[Run]:
        """What that worker claimed last."""
        return runs.filter(worker=self.value()) if self.value() else runs


def _reporting() -> set[str]:
    redis = shared(settings.STREAMS_URL)
    seen: list[reports.Seen] = redis.ask(lambda: reports.read(redis.client), otherwise=[])
    return {one.worker for one in seen}


def _latest() -> set[str]:
    names = Run.objects.order_by("-id").values_list("worker", flat=True)[: WorkerFilter.LATEST]
    return {name for name in names if name}
