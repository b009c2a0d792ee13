"""The load as it is now: who waits, from the rows; what workers do, from their reports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import cast

from django.conf import settings
from django.db.models import Count, DurationField, ExpressionWrapper, Min
from django.db.models.functions import Now
from django.utils import timezone

from chat.models import Run, Status
from inference import reports
from inference.reports import Report, Seen, TierReport
from scheduler.dispensable import shared
from scheduler.models import Model, Tier
from scheduler.room import BACKGROUND

# A model and a tier.
Place = tuple[str, str]

IDLE = TierReport()


@dataclass(frozen=True, slots=True)
class Waiting:
    """Queued replies of one model and tier, and for how long the oldest of them has waited."""

    runs: int = 0
    oldest_s: float = 0.0


NONE = Waiting()


@dataclass(frozen=True, slots=True)
class TierLoad:
    """One tier at one model: who waits, and of the workers that report the runs they hold and rates of the last minute.

    `share` is its part of the tokens that these workers charged in the last minute; None while they charged none.
    """

    tier: Tier
    waiting: Waiting
    in_hand: int
    taken_per_s: float
    share: float | None


@dataclass(frozen=True, slots=True)
class ModelLoad:
    """One model: its tiers, and its workers, those too that have gone silent."""

    model: Model
    tiers: Sequence[TierLoad]
    workers: Sequence[Seen]

    @property
    def serving(self) -> list[Seen]:
        """Workers that report."""
        return [seen for seen in self.workers if seen.is_fresh]

    @property
    def waiting(self) -> int:
        """Runs of all tiers that wait."""
        return sum(load.waiting.runs for load in self.tiers)

    @property
    def in_hand(self) -> int:
        """Runs that workers hold."""
        return sum(load.in_hand for load in self.tiers)

    @property
    def slots(self) -> int:
        """The most runs that its workers generate together."""
        return sum(int(seen.report.engine.get("slots", 0)) for seen in self.serving)

    @property
    def input_tokens_per_s(self) -> float:
        """Of all its workers."""
        return sum(seen.report.input_tokens_per_s for seen in self.serving)

    @property
    def output_tokens_per_s(self) -> float:
        """Of all its workers."""
        return sum(seen.report.output_tokens_per_s for seen in self.serving)

    @property
    def kv_cache_usage(self) -> float | None:
        """The mean of its workers'; None when there is none."""
        usages = [seen.report.engine.get("kv_cache_usage", 0.0) for seen in self.serving]
        return sum(usages) / len(usages) if usages else None


@dataclass(frozen=True, slots=True)
class Picture:
    """All models at one moment; without `knows_workers` the streams' Redis is away, and nothing is known of workers."""

    at: datetime
    models: Sequence[ModelLoad]
    knows_workers: bool


def draw() -> Picture:
    """Four queries and one round trip to Redis, however many runs, readers and workers there are."""
    redis = shared(settings.STREAMS_URL)
    seen = redis.ask(lambda: reports.read(redis.client), otherwise=None)
    waiting, tiers = _waiting(), list(Tier.objects.order_by("-weight", "slug"))
    busy = {model for model, _ in waiting} | {one.report.model for one in seen or ()}
    models = [
        _load(model, tiers, waiting, [one for one in seen or () if one.report.model == model.pk])
        for model in Model.objects.prefetch_related("tiers")
        if model.is_active or model.pk in busy
    ]
    return Picture(timezone.now(), models, knows_workers=seen is not None)


def _waiting() -> dict[Place, Waiting]:
    age = ExpressionWrapper(Now() - Min("created_at"), output_field=DurationField())
    queued = Run.objects.filter(kind=Run.Kind.REPLY, status=Status.QUEUED).order_by().values("model", "tier")
    rows = queued.annotate(runs=Count("pk"), oldest=age).values_list("model", "tier", "runs", "oldest")
    return {(model, tier): Waiting(runs, cast(timedelta, oldest).total_seconds()) for model, tier, runs, oldest in rows}


def _load(model: Model, tiers: Iterable[Tier], waiting: Mapping[Place, Waiting], workers: Sequence[Seen]) -> ModelLoad:
    parts = [replies(seen.report) for seen in workers if seen.is_fresh]
    busy = {slug for part in parts for slug, of_tier in part.items() if of_tier.in_hand or of_tier.taken_per_s}
    shown = {tier.pk for tier in model.tiers.all()} | busy | {tier for slug, tier in waiting if slug == model.pk}
    charged_per_s = sum(of_tier.charged_per_s for part in parts for of_tier in part.values())
    loads = (
        _tier_load(
            tier, waiting.get((model.pk, tier.pk), NONE), [part.get(tier.pk, IDLE) for part in parts], charged_per_s
        )
        for tier in tiers
        if tier.pk in shown
    )
    return ModelLoad(model, list(loads), workers)


def replies(report: Report) -> Mapping[str, TierReport]:
    """A worker's parts by tier, without titles and summaries."""
    return {slug: part for slug, part in report.tiers.items() if slug != BACKGROUND}


def _tier_load(tier: Tier, waiting: Waiting, parts: Sequence[TierReport], all_charged_per_s: float) -> TierLoad:
    charged_per_s = sum(part.charged_per_s for part in parts)
    return TierLoad(
        tier=tier,
        waiting=waiting,
        in_hand=sum(part.in_hand for part in parts),
        taken_per_s=sum(part.taken_per_s for part in parts),
        share=charged_per_s / all_charged_per_s if all_charged_per_s else None,
    )
