"""What a GPU worker is told about rows: it loads `host` by name, since it never imports Django itself."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import django

from inference.host import NotServed, ServedModel, Workplace

if TYPE_CHECKING:
    from celery import Celery

    from chat.generation import Attempts
    from scheduler.fairness import FairOrder
    from scheduler.models import Model, ModelVersion

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
        """The model's active version. Raises `NotServed`."""
        with _rows():
            model = _check_active(slug)
            if model.version is None:
                raise NotServed(f"the model {slug!r} has no active version")
            return _described(model.version)

    def queues(self, slug: str) -> Mapping[str, float]:
        """Those of the model's tiers, by weight. Raises `NotServed`."""
        with _rows():
            _check_active(slug)
            return _queues(slug)

    def roster(self, slug: str, worker_name: str) -> RowRoster:
        """The worker's place, in the rows."""
        return RowRoster(slug, worker_name)

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


class RowRoster:
    """A worker's place, in the rows; see `inference.host.Roster`."""

    def __init__(self, slug: str, worker_name: str) -> None:
        self._slug, self._worker_name = slug, worker_name

    def enter(self) -> ServedModel:
        """The worker begins."""
        from scheduler import rollouts

        with _rows():
            _check_active(self._slug)
            return _described(rollouts.enlist(self._slug, self._worker_name))

    def check_in(self, phase: str, detail: str) -> int | None:
        """It is there, and so far."""
        from scheduler import rollouts

        with _rows():
            return rollouts.check_in(self._worker_name, phase, detail)

    def arrived(self, revision: str, digest: str, manifest: Any) -> None:
        """It is about to serve."""
        from scheduler import rollouts

        with _rows():
            rollouts.arrived(self._worker_name, revision, digest, manifest)

    def failed(self, reason: str) -> None:
        """It could not."""
        from scheduler import rollouts

        with _rows():
            rollouts.failed(self._worker_name, reason)

    def leave(self) -> None:
        """It ends."""
        from scheduler import rollouts

        with _rows():
            rollouts.resign(self._worker_name)


@contextmanager
def _rows() -> Iterator[None]:
    """Ask the database, and give the connection back. Raises `NotServed` for whatever keeps it from an answer."""
    from django.db import DatabaseError, InterfaceError, connections

    from scheduler.rollouts import FilesDiffer, NoVersion

    try:
        yield
    except (NoVersion, FilesDiffer) as refused:
        raise NotServed(str(refused)) from refused
    except (DatabaseError, InterfaceError) as error:
        reason = f"the database does not answer: {' '.join(str(error).split())}"
        raise NotServed(reason, is_passing=True) from error
    finally:
        connections.close_all()


def _check_active(slug: str) -> Model:
    from scheduler.models import Model

    model = Model.objects.select_related("version").filter(slug=slug, is_active=True).first()
    if model is None:
        raise NotServed(f"no active model {slug!r}")
    return model


def _described(version: ModelVersion) -> ServedModel:
    return ServedModel(
        slug=version.model_id,
        source=version.source,
        context_window=version.context_window,
        queues=_queues(version.model_id),
        version=version.pk,
        revision=version.revision,
        manifest=version.manifest,
        arguments=version.engine_arguments,
    )


def _queues(slug: str) -> Mapping[str, float]:
    from chat.queueing import estimates
    from scheduler.fairness import background_weight
    from scheduler.models import Tier
    from scheduler.room import BACKGROUND, queue_name

    # Of all tiers, not the model's own alone: runs may wait from before a tier lost the model.
    tiers = dict(Tier.objects.values_list("slug", "weight"))
    estimates().note_weights(slug, tiers)
    weights = {**tiers, BACKGROUND: background_weight(tiers)}
    return {queue_name(slug, tier): weight for tier, weight in weights.items()}


host = RowHost()
