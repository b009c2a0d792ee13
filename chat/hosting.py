"""What a GPU worker is told about rows: it loads `host` by name, since it never imports Django itself."""

from __future__ import annotations

import os
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import django

from inference.host import NotServed, ServedModel, Workplace

if TYPE_CHECKING:
    from celery import Celery

    from chat.generation import Attempts
    from scheduler.fairness import FairOrder

# This module is where the worker process enters Django, as manage.py and asgi.py are for others.
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "chatsite.settings")
# One for each thread that asks for rows: a renewal of leases must not wait for a connection.
os.environ.setdefault("DATABASE_POOL", "8")
django.setup()


class RowHost:
    """The worker's view of the rows; see `inference.host.Host`."""

    @property
    def celery_app(self) -> Celery:
        """The app whose tasks the worker runs."""
        from chatsite.celery import app

        return app

    def served_model(self, slug: str) -> ServedModel:
        """The model's row. Raises `NotServed`."""
        from django.db import DatabaseError, connections

        try:
            return _served_model(slug)
        except DatabaseError as error:
            raise NotServed(f"the database does not answer: {' '.join(str(error).split())}") from error
        finally:
            connections.close_all()

    def queue_order(self) -> FairOrder:
        """One that heeds the tiers' weights."""
        from scheduler.fairness import FairOrder
        from scheduler.room import is_background

        return FairOrder(beside=is_background)

    def runner(self, workplace: Workplace) -> AbstractAsyncContextManager[Attempts]:
        """Attempts on the workplace's engine."""
        from django.conf import settings

        from chat.generation import attempts_on

        return attempts_on(workplace, timedelta(seconds=settings.LEASE_S))


def _served_model(slug: str) -> ServedModel:
    from chat.queueing import estimates
    from scheduler.fairness import background_weight
    from scheduler.models import Model, Tier
    from scheduler.room import BACKGROUND, queue_name

    model = Model.objects.filter(slug=slug, is_active=True).first()
    if model is None:
        raise NotServed(f"no active model {slug!r}")
    # Of all tiers, not the model's own alone: runs may wait from before a tier lost the model.
    tiers = dict(Tier.objects.values_list("slug", "weight"))
    estimates().note_weights(slug, tiers)
    weights = {**tiers, BACKGROUND: background_weight(tiers)}
    queues = {queue_name(slug, tier): weight for tier, weight in weights.items()}
    return ServedModel(slug, Path(model.source), model.context_window, queues)


host = RowHost()
