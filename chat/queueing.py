"""Runs on their way to a worker: the rows say who waits, the broker is told."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import lru_cache
from itertools import chain, groupby
from math import ceil
from operator import attrgetter
from uuid import UUID

from django.conf import settings
from kombu.exceptions import KombuError
from redis.exceptions import RedisError

from chat.models import Run, Status
from chat.models.runs import room_tier
from chatsite.database.prepared import planned
from scheduler.admission import Waiting
from scheduler.dispatch import Dispatcher, broker_client
from scheduler.dispensable import shared
from scheduler.estimates import Estimates
from scheduler.models import Model, Tier
from scheduler.room import Correction, Newcomer, Release
from scheduler.routing import Decision, Report, Route, Warm

logger = logging.getLogger(__name__)

# From a worker's pull to its claim; the database may be busy.
TAKING_S = 0.5
# What `readmit` reads of runs, beside their chats' owner.
READS = (
    *("kind", "model", "tier", "input_tokens", "max_output_tokens", "released_at"),
    *("warm_worker", "warm_tokens"),
)
# Of those that were sent to one worker and are for all since then, the rest of the route stays true. One statement for
# all runs of a release.
MARK = """
    UPDATE chat_run
       SET released_at = coalesce(released_at, statement_timestamp()),
           route = coalesce(coalesce(chat_run.route, '{}') || told.route, chat_run.route)
      FROM unnest(%(run_ids)s::uuid[], %(routes)s::text[]::jsonb[]) AS told (run_id, route)
     WHERE chat_run.id = told.run_id
"""

LATE = json.dumps({"decision": Decision.LATE})


def admit(run: Run) -> None:
    """Let a queued run into its room. With the broker away it waits in the database."""
    try:
        sent = dispatcher().admit([newcomer(run)], run.model_id, run.room_tier)
    except (RedisError, KombuError, OSError) as error:
        # The row stays queued, by which the reaper finds it.
        logger.warning("dispatch.failed run=%s reason=%s", run.pk, type(error).__name__)
    else:
        _mark_released(sent)


def withdraw(run: Run) -> bool:
    """Take a run that has ended out of its room or its queue; False when it waits in neither.

    With the broker away its message finds nothing to do.
    """
    try:
        if not dispatcher().remove(newcomer(run), run.model_id, run.room_tier):
            return False
        release(run.model_id, run.room_tier)
    except (RedisError, KombuError, OSError) as error:
        logger.warning("dispatch.not_withdrawn run=%s reason=%s", run.pk, type(error).__name__)
    return True


def readmit(runs: Iterable[Run]) -> int:
    """Let runs that no worker has into their rooms again, where neither room nor queue knows of them; says how many.

    Either the broker never heard of such a run or it lost it; or a worker is just taking it, which has `TAKING_S` to
    claim it. If that takes longer it is sent twice, which the claim makes harmless. Releases as well: whoever should
    have may be dead. Raises `RedisError` or `KombuError` when the broker is away.
    """
    room_of = attrgetter("model_id", "room_tier")
    rooms = {room: {run.pk: run for run in group} for room, group in groupby(sorted(runs, key=room_of), key=room_of)}
    missing = {room: dispatcher().missing([*waiting], *room) for room, waiting in rooms.items()}
    if any(missing.values()):
        time.sleep(TAKING_S)
        unheld = set(Run.objects.unheld(chain.from_iterable(missing.values())))
        missing = {room: dispatcher().missing([*unheld.intersection(ids)], *room) for room, ids in missing.items()}
    for room, waiting in rooms.items():
        _mark_released(dispatcher().admit([newcomer(waiting[run_id]) for run_id in missing[room]], *room))
    return sum(map(len, missing.values()))


def release(
    model: str,
    tier: str,
    departed: Sequence[UUID] = (),
    corrections: Iterable[Correction] = (),
    report: Report | None = None,
) -> Release:
    """Send the runs that are next, while the queue is shallow; call it when a worker has taken one or ended one.

    `departed` are those that workers have taken and nobody has told of yet, `corrections` what those came to that have
    ended since; a worker reports of itself. Raises `RedisError` or `KombuError` when the broker is away.
    """
    sent = dispatcher().release(model, tier, departed, corrections, report)
    _mark_released(sent)
    return sent


def sweep() -> int:
    """Let all workers have what is kept for one that is silent, or for too long; says how many runs.

    Raises `RedisError` when the broker is away.
    """
    late = [run_id for model in Model.objects.values_list("pk", flat=True) for run_id in dispatcher().sweep(model)]
    _mark_released(Release([], late=late))
    return len(late)


def tell(model: str, report: Report) -> None:
    """A worker of the model is there, and does so. Raises `RedisError` when the broker is away."""
    dispatcher().tell(model, report)


def leave(model: str, worker: str) -> None:
    """A worker of the model is about to end. Raises `RedisError` when the broker is away."""
    dispatcher().leave(model, worker)


def correct(run: Run) -> None:
    """Let the order know what a run came to that its worker does not tell of. With the broker away it never does."""
    try:
        release(run.model_id, run.room_tier, corrections=[correction(run)])
    except (RedisError, KombuError, OSError) as error:
        logger.warning("dispatch.not_corrected run=%s reason=%s", run.pk, type(error).__name__)


def newcomer(run: Run) -> Newcomer:
    """The run as its room takes it in: charged only once, and told apart by whether a room let it go before."""
    warm = Warm(run.warm_worker, run.warm_tokens) if settings.AFFINITY and run.warm_worker else None
    return Newcomer(run.pk, run.chat.owner_id, run.cost, run.released_at is not None, warm)


def correction(run: Run) -> Correction:
    """What an ended run came to, in place of its cost."""
    return Correction(run.chat.owner_id, run.cost, run.drawn)


def release_all() -> None:
    """`release` for every room in which runs wait; call it when a message led to no run, which might have named one.

    Raises `RedisError` or `KombuError` when the broker is away.
    """
    waiting = Run.objects.filter(status=Status.QUEUED, released_at=None).order_by()
    kinds = waiting.values_list("model", "tier", "kind").distinct()
    for room in {(model, room_tier(tier, kind)) for model, tier, kind in kinds}:
        release(*room)


def retry_after_s(waiting: Waiting, model: Model, tier: Tier) -> int:
    """Seconds until another run of the tier may wait, by how fast the queues have drained; else a guess.

    At most the deadline of those who wait: by then they have left, though no worker takes any. One round trip, and at
    most one query.
    """
    drain = estimates().drain(model.pk)
    # So many are to leave before there is one: of the tier, and of all tiers, or of those in the tier's own places.
    of_tier, of_model = 1 - waiting.places_in_tier(tier), 1 - waiting.places_at_model(model, tier)
    ahead = drain.ahead(tier.pk, of_tier) if of_tier > 0 else 0
    if of_model > 0:
        of_own = 1 + waiting.of_tier(tier.pk) - waiting.kept(model, tier.pk)
        ahead = max(ahead, min(of_model - 1, drain.ahead(tier.pk, of_own)))
    wait_s = drain.retry_after_s(ahead)
    who_wait = Tier.objects.all() if of_model > 0 else [tier]
    return min(wait_s, max(each.queue_deadline_s for each in who_wait))


def lateness_s(waiting: Waiting, model: Model, tier: Tier) -> int:
    """By how many whole seconds another run of the tier would miss its deadline; 0 also while the wait is unknown.

    One round trip, and none while nobody waits.
    """
    if not waiting.of_model:
        return 0
    drain = estimates().drain(model.pk)
    wait_s = drain.wait_s(drain.ahead(tier.pk, waiting.of_tier(tier.pk) + 1))
    return 0 if wait_s is None else max(0, ceil(wait_s - tier.queue_deadline_s))


def estimates() -> Estimates:
    """By the broker of the settings."""
    return Estimates(shared(settings.BROKER_URL))


def dispatcher() -> Dispatcher:
    """This process's dispatcher for the broker of the settings."""
    return _dispatcher(settings.BROKER_URL, settings.DISPATCH_LOOKAHEAD)


@lru_cache
def _dispatcher(broker_url: str, lookahead: int) -> Dispatcher:
    from chatsite.celery import app

    return Dispatcher(broker_client(broker_url), app, lookahead)


def _mark_released(release: Release) -> None:
    routes = {departure.run_id: _told(departure.route) for departure in release.taken}
    routes |= dict.fromkeys(release.late, LATE)
    if routes:
        with planned() as cursor:
            cursor.execute(MARK, {"run_ids": [*routes], "routes": [*routes.values()]})


def _told(route: Route | None) -> str | None:
    return json.dumps(asdict(route)) if route else None
