"""How a model changes to another version: rows only, so that whoever comes next goes on with what is under way.

One worker at a time is told to change: it drains, ends, comes back, loads the version and answers a probe. With the
first that cannot, all go back to the version before, one at a time too. Workers and the reaper call this; each call
holds the model's row meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from django.db import connection, transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from scheduler.models import Model, ModelVersion, Rollout, Worker

logger = logging.getLogger(__name__)

State, Phase = Rollout.State, Worker.Phase
COMING = frozenset({Phase.FETCHING, Phase.LOADING, Phase.PROBING})

# A worker tells of itself every two seconds, from a thread that nothing else holds up; starting anew takes it some.
SILENT = timedelta(seconds=60)
FORGOTTEN = timedelta(hours=1)
# Longer than any of these takes where all is well.
OVERDUE: Mapping[str, timedelta] = {
    Phase.SERVING: timedelta(minutes=2),  # it was told to change
    Phase.DRAINING: timedelta(hours=2),
    Phase.FETCHING: timedelta(hours=12),
    Phase.LOADING: timedelta(hours=1),
    Phase.PROBING: timedelta(minutes=10),
    Phase.FAILED: timedelta(minutes=2),
}


class RolloutRefused(Exception):
    """Not now, or not this version; the text says why and what to do."""


class NoVersion(Exception):
    """The model has no version to serve; the text says what to do."""


class FilesDiffer(Exception):
    """What a worker has loaded is not what the version's first worker loaded; the text says so."""


def activate(version: ModelVersion, by: str = "") -> Rollout:
    """Begin to roll a version out. Raises `RolloutRefused`."""
    with transaction.atomic():
        model = Model.objects.select_for_update(no_key=True).get(pk=version.model_id)
        if under_way := Rollout.objects.open().filter(model=model).first():
            is_back = under_way.state == State.ROLLING_BACK
            way = "back. Wait for its end." if is_back else "out. Wait for its end, or roll it back."
            raise RolloutRefused(f"{under_way.version} is being rolled {way}")
        if not model.is_active:
            raise RolloutRefused(f"{model} is switched off, so that no worker serves it. Switch it on first.")
        if model.version_id == version.pk:
            raise RolloutRefused(f"{version} is active already.")
        ModelVersion.objects.filter(pk=version.pk).update(problem="")
        rollout = Rollout.objects.create(model=model, version=version, previous_id=model.version_id, started_by=by)
        if model.version_id:
            # From now on both must have room for what is asked.
            Model.objects.filter(pk=model.pk, context_window__gt=version.context_window).update(
                context_window=version.context_window
            )
        _advance(model.pk)
    logger.info("rollout.begins model=%s version=%d by=%s", model.pk, version.number, by or "-")
    return rollout


def adopt(version: ModelVersion) -> None:
    """Make a version the active one at once: no worker runs that would have to change."""
    with transaction.atomic():
        model = Model.objects.select_for_update(no_key=True).get(pk=version.model_id)
        Rollout.objects.open().filter(model=model).update(
            state=State.ROLLED_BACK, ended_at=Now(), reason=f"{version} was made the active one meanwhile."
        )
        _make_active(version)


def roll_back(rollout: Rollout, reason: str) -> None:
    """Send all workers back to the version before; nothing where the rollout has ended or is being rolled back."""
    with _locked(rollout.model_id):
        _fail(Rollout.objects.get(pk=rollout.pk), reason)


def enlist(model_slug: str, name: str) -> ModelVersion:
    """A worker begins: which version it is to load. Raises `NoVersion`."""
    with transaction.atomic(), _locked(model_slug) as model:
        worker = Worker.objects.filter(pk=name, model=model).first()
        rollout = _open(model_slug)
        if worker and rollout and _died_on_its_way(worker, rollout):
            _fail(rollout, f"{name} ended while {_doing(worker)} {rollout.version}: its log says why.")
            rollout = _open(model_slug)
            worker = Worker.objects.get(pk=name)
        version = _version_for(model, worker, rollout)
        now = {"model": model, "version": version, "target": version, "phase": Phase.FETCHING, "detail": ""}
        Worker.objects.update_or_create(pk=name, defaults={**now, "since": Now(), "seen_at": Now()})
    return version


def check_in(name: str, phase: str, detail: str) -> int | None:
    """A worker is there, and so far; which version it shall serve, None where it is not known any more."""
    with connection.cursor() as cursor:
        cursor.execute(CHECK_IN, {"name": name, "phase": phase, "detail": detail[:500]})
        row = cursor.fetchone()
    return row[0] if row else None


CHECK_IN = """
    UPDATE scheduler_worker
       SET since = CASE WHEN phase = %(phase)s THEN since ELSE statement_timestamp() END,
           phase = %(phase)s, detail = %(detail)s, seen_at = statement_timestamp()
     WHERE name = %(name)s
 RETURNING target_id
"""


def arrived(name: str, revision: str, digest: str, manifest: Any) -> None:
    """A worker has loaded its version and answered the probe: it is about to serve. Raises `FilesDiffer`."""
    with transaction.atomic(), _locked(Worker.objects.values_list("model", flat=True).get(pk=name)):
        worker = Worker.objects.select_related("version").get(pk=name)
        version = worker.version
        if version.digest and version.digest != digest:
            raise FilesDiffer(f"the files of {version} are others than where it was loaded first")
        if not version.digest:
            found = {"revision": revision, "digest": digest, "manifest": manifest}
            ModelVersion.objects.filter(pk=version.pk).update(**found)
        Worker.objects.filter(pk=name).update(phase=Phase.SERVING, detail="", since=Now(), seen_at=Now())
        _advance(worker.model_id)


def failed(name: str, reason: str) -> None:
    """A worker could not load its version, or got no answer from it."""
    worker = Worker.objects.filter(pk=name).first()
    if worker is None:
        return
    with _locked(worker.model_id):
        Worker.objects.filter(pk=name).update(phase=Phase.FAILED, detail=reason[:500], since=Now(), seen_at=Now())
        rollout = _open(worker.model_id)
        if rollout and rollout.state == State.RUNNING and worker.version_id == rollout.version_id:
            _fail(rollout, f"{name}: {reason}")
        elif rollout and rollout.state == State.ROLLING_BACK and worker.version_id == rollout.previous_id:
            _give_up_way_back(rollout, f"{rollout.reason}\nAnd on the way back {name}: {reason}")


def resign(name: str) -> None:
    """A worker ends, and is not about to come back with another version."""
    Worker.objects.filter(pk=name).delete()


def advance() -> None:
    """Take the next step of each rollout that is under way; called every few seconds."""
    Worker.objects.filter(seen_at__lt=Now() - FORGOTTEN).delete()
    for model_slug in Rollout.objects.open().values_list("model", flat=True):
        with _locked(model_slug):
            _advance(model_slug)


@contextmanager
def _locked(model_slug: str) -> Iterator[Model]:
    """Be the only one meanwhile who decides about the model's workers. Raises `NoVersion` where it is gone."""
    with transaction.atomic():
        model = Model.objects.select_for_update(no_key=True).filter(pk=model_slug).first()
        if model is None:
            raise NoVersion(f"there is no model {model_slug!r}")
        yield model


def _open(model_slug: str) -> Rollout | None:
    return Rollout.objects.open().select_related("version", "previous").filter(model=model_slug).first()


def _version_for(model: Model, worker: Worker | None, rollout: Rollout | None) -> ModelVersion:
    wanted = model.version_id
    if rollout and rollout.state == State.RUNNING:
        was_told = worker is not None and worker.target_id == rollout.version_id
        # The first version of all everybody may try. Beside others that serve, a new one waits for its turn.
        is_alone = not _living(model.pk).exclude(pk=worker.pk if worker else "").exists()
        if was_told or is_alone or rollout.previous_id is None:
            wanted = rollout.version_id
    version = ModelVersion.objects.filter(pk=wanted).first() if wanted else None
    if version is None:
        raise NoVersion(f"the model {model.pk!r} has no active version: stage one in the admin, and activate it")
    return version


def _living(model_slug: str) -> QuerySet[Worker]:
    return Worker.objects.filter(model=model_slug, seen_at__gte=Now() - SILENT)


def _died_on_its_way(worker: Worker, rollout: Rollout) -> bool:
    return rollout.state == State.RUNNING and worker.version_id == rollout.version_id and worker.phase in COMING


def _doing(worker: Worker) -> str:
    doing = {Phase.FETCHING: "fetching", Phase.LOADING: "loading", Phase.PROBING: "probing"}
    return doing.get(Phase(worker.phase), "changing to")


def _fail(rollout: Rollout, reason: str) -> None:
    """Turn round; the workers that were told to come are told to go back in their turn, those on the way at once."""
    if rollout.state != State.RUNNING or rollout.ended_at:
        return
    logger.warning("rollout.fails model=%s version=%d reason=%s", rollout.model_id, rollout.version.number, reason)
    Rollout.objects.filter(pk=rollout.pk).update(state=State.ROLLING_BACK, reason=reason)
    ModelVersion.objects.filter(pk=rollout.version_id).update(problem=reason)
    told = Worker.objects.filter(model=rollout.model_id, target=rollout.version_id)
    if rollout.previous_id is None:
        told.delete()  # which ends them: there is nothing to go back to
    else:
        told.exclude(version=rollout.version_id, phase=Phase.SERVING).update(target=rollout.previous_id)
    _advance(rollout.model_id)


def _advance(model_slug: str) -> None:
    rollout = _open(model_slug)
    if rollout is None:
        return
    goal = rollout.goal_id
    told = Worker.objects.filter(model=model_slug, target=goal)
    coming = [worker for worker in told if not worker.is_serving_its_target]
    for worker in coming:
        if problem := _problem(worker):
            _give_up(rollout, worker, problem)
            return
    if coming:
        return
    if rest := _living(model_slug).exclude(target=goal).first():
        Worker.objects.filter(pk=rest.pk).update(target=goal, since=Now())
        logger.info("rollout.tells worker=%s model=%s version=%s", rest.name, model_slug, goal)
    elif rollout.state == State.ROLLING_BACK:
        _end(rollout, State.ROLLED_BACK)
    elif _living(model_slug).filter(version=goal, phase=Phase.SERVING).exists():
        _make_active(rollout.version)
        _end(rollout, State.DONE)


def _problem(worker: Worker) -> str:
    """Why nobody waits for a worker any more that is on its way; empty as long as it may be."""
    now = _now()
    if worker.seen_at < now - SILENT:
        return f"{worker.name} fell silent while {_doing(worker)} it"
    limit = OVERDUE[worker.phase]
    if worker.since < now - limit:
        said = f" ({worker.detail})" if worker.detail else ""
        return f"{worker.name} is at '{worker.get_phase_display()}'{said} for more than {limit}"
    return ""


def _give_up(rollout: Rollout, worker: Worker, problem: str) -> None:
    if rollout.state == State.RUNNING:
        _fail(rollout, problem)
    else:
        # On the way back nobody is waited for: it is to serve that version whenever it comes.
        Worker.objects.filter(pk=worker.pk).delete()
        logger.warning("rollout.leaves worker=%s reason=%s", worker.name, problem)


def _give_up_way_back(rollout: Rollout, reason: str) -> None:
    """The version before cannot be loaded either: the others go back unawaited, and another may be rolled out."""
    Rollout.objects.filter(pk=rollout.pk).update(reason=reason)
    Worker.objects.filter(model=rollout.model_id, target=rollout.version_id).update(target=rollout.previous_id)
    _end(rollout, State.ROLLED_BACK)


def _end(rollout: Rollout, state: str) -> None:
    Rollout.objects.filter(pk=rollout.pk).update(state=state, ended_at=Now())
    if state == State.ROLLED_BACK and rollout.previous:
        Model.objects.filter(pk=rollout.model_id).update(context_window=rollout.previous.context_window)
    logger.info("rollout.ends model=%s version=%d state=%s", rollout.model_id, rollout.version.number, state)


def _make_active(version: ModelVersion) -> None:
    states = ModelVersion.State
    ModelVersion.objects.filter(model=version.model_id, state=states.ACTIVE).update(state=states.RETIRED)
    ModelVersion.objects.filter(pk=version.pk).update(state=states.ACTIVE, problem="")
    served = {"source": version.source, "context_window": version.context_window}
    Model.objects.filter(pk=version.model_id).update(version=version, **served)


def _now() -> datetime:
    with connection.cursor() as cursor:
        cursor.execute("SELECT statement_timestamp()")
        found: datetime = cursor.fetchone()[0]
    return found
