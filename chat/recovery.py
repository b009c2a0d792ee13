"""The reaper: finds what nobody brings to its end any more. It leans on the rows, not on workers, broker or streams."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import islice
from typing import cast
from uuid import UUID

from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection, connections
from django.db.models.functions import Now
from kombu.exceptions import KombuError
from redis.exceptions import RedisError

from chat import accounting, burials, cancelling, endings, forgetting, last_words, queueing
from chat.load.history import Sampler
from chat.models import Checkpoint, DeletedRun, IdempotencyKey, Run, Status
from chat.rows import DatabaseAway
from inference.streams import ENDED_TTL_S
from scheduler import rollouts

logger = logging.getLogger(__name__)

LOCK = 0x70616C61766572  # any number that nobody else uses in this database
# A reaper that was stopped in mid-round loses its session, and with it the lock.
IDLE_S = 15
TRY_LOCK = "SELECT set_config('idle_session_timeout', %s, false), pg_try_advisory_lock(%s)"
# A worker tells an end right after its commit.
GRACE = timedelta(seconds=2)
# An end is dated by its statement, and seen from its commit on.
OVERLAP = timedelta(seconds=10)
PAGE = 500
# Of the queued runs in a round, unless some of them were lost: however many wait, a round takes no longer.
LOOK = 1000
BACKGROUND_ATTEMPTS = 2
# With the streams or the broker silent each takes seconds, and dead workers' runs must not wait for a page of them.
EXPIRING_S = 5.0


class Reaper:
    """Looks at all live runs, round after round. Any number of processes may do so: one at a time does, by a lock."""

    def __init__(self, period_s: float) -> None:
        self._period_s = period_s
        self._ends_told_until: datetime | None = None
        self._looked_until: UUID | None = None
        self._sampler = Sampler()

    def reap(self, stopped: threading.Event) -> None:
        """Go on until stopped. A round that fails is made good by the next."""
        while not stopped.wait(self._period_s):
            try:
                self.round()
            except (DatabaseError, InterfaceError) as error:
                logger.warning("reaper.database_away error=%s", type(error).__name__)
                # While it was away from us, it may have been away from those who hold leases.
                stopped.wait(settings.LEASE_S)
            except Exception:
                logger.exception("reaper.round_failed")
            finally:
                connections.close_all()

    def round(self) -> bool:
        """Look once; False when another process is at it. Raises `DatabaseError`."""
        with _only_one() as is_ours:
            if is_ours:
                self._robustly(self._sweep_queues)
                self._robustly(self._revive)
                self._robustly(self._bury)
                self._robustly(self._expire)
                self._robustly(self._settle)
                self._robustly(self._tell_ends)
                self._sweep()
                self._robustly(self._forget)
                self._robustly(rollouts.advance)
                self._robustly(self._sample)
        return is_ours

    def _sweep_queues(self) -> None:
        """Runs that wait for one worker and should not: it is silent, or busier than was thought."""
        if moved := queueing.sweep():
            logger.info("reaper.swept runs=%d", moved)

    def _revive(self) -> None:
        """Runs whose worker went silent, and queued ones of which the broker does not know."""
        looked_at = [run for run in Run.objects.abandoned().select_related("chat") if not _is_hopeless(run)]
        abandoned = len(looked_at)
        while True:
            queued = self._next_queued()
            readmitted = queueing.readmit([*looked_at, *queued])
            self._looked_until = queued[-1].pk if len(queued) == LOOK else None
            if readmitted:
                logger.warning("reaper.readmitted runs=%d abandoned=%d", readmitted, abandoned)
            # Where some were lost, more may have been. All are looked at in the end, a part in each round.
            if not readmitted or self._looked_until is None:
                return
            looked_at, abandoned = [], 0

    def _next_queued(self) -> list[Run]:
        """Those behind the ones that were looked at last, oldest first; from the oldest on again once all were."""
        queued = Run.objects.filter(status=Status.QUEUED).select_related("chat").only("chat__owner", *queueing.READS)
        behind = queued.filter(pk__gt=self._looked_until) if self._looked_until else queued
        return list(behind.order_by("pk")[:LOOK])

    def _bury(self) -> None:
        """Runs whose worker went silent and that no other shall have. Behind the living: each may take seconds."""
        for run in filter(_is_hopeless, Run.objects.abandoned()):
            try:
                burials.bury(run.pk)
            except DatabaseAway:
                raise
            except Exception:
                # The others must not wait for one that breaks whoever touches it.
                logger.exception("reaper.not_buried run=%s", run.pk)

    def _expire(self) -> None:
        """Queued runs whose deadline has passed, oldest first; those for which there is no time have the next round."""
        until = time.monotonic() + EXPIRING_S
        for run in Run.objects.overdue().order_by("id")[:PAGE]:
            if cancelling.expire(run):
                logger.info("run.ended run=%s attempt=0 status=failed code=%s", run.pk, endings.QUEUE_TIMEOUT)
            if time.monotonic() >= until:
                return

    def _settle(self) -> None:
        """What is reserved for runs that have ended, or that were never stored."""
        if settled := accounting.settle_left_over():
            logger.warning("reaper.settled runs=%d", settled)

    def _tell_ends(self) -> None:
        """Ends whose worker died between the commit and the last entry."""
        until = _database_now() - GRACE
        kept_since = until - timedelta(seconds=ENDED_TTL_S)
        since = max(self._ends_told_until or kept_since, kept_since)
        found = 0
        ended = Run.objects.ended_between(since, until).only("attempt").order_by()
        for page in _batched(ended.iterator(), PAGE):
            for run in Run.objects.select_related("answer").filter(pk__in=[run.pk for run in last_words.untold(page)]):
                last_words.tell_end(run, run.answer.content if run.answer else "")
                logger.warning("reaper.told_end run=%s", run.pk)
                found += 1
        # Telling may have failed: who was found is looked at again.
        if not found:
            self._ends_told_until = until - OVERLAP

    def _sweep(self) -> None:
        Checkpoint.objects.exclude(run__status=Status.STREAMING).delete()
        IdempotencyKey.objects.expired().delete()
        DeletedRun.objects.filter(deleted_at__lt=Now() - accounting.DELETED_KEPT).delete()

    def _forget(self) -> None:
        """What was said in chats that are not kept."""
        if forgotten := forgetting.forget():
            logger.info("reaper.forgot runs=%d", forgotten)

    def _sample(self) -> None:
        """A picture of the load for the operators' charts: it needs one process that is always there."""
        self._sampler.sample_when_due()

    def _robustly(self, step: Callable[[], None]) -> None:
        """The other steps must not wait for a server that this one needs."""
        try:
            step()
        except (RedisError, KombuError, OSError) as error:
            logger.warning("reaper.%s_failed error=%s", step.__name__.strip("_"), type(error).__name__)


def _is_hopeless(run: Run) -> bool:
    """Whether it was cancelled, or has killed too many workers: two are too many for a run that nobody waits for."""
    most = settings.MAX_ATTEMPTS if run.kind == Run.Kind.REPLY else min(BACKGROUND_ATTEMPTS, settings.MAX_ATTEMPTS)
    return run.cancel_requested_at is not None or run.attempt - run.hand_backs >= most


def _batched(runs: Iterable[Run], size: int) -> Iterator[list[Run]]:
    ours = iter(runs)
    while page := list(islice(ours, size)):
        yield page


@contextmanager
def _only_one() -> Iterator[bool]:
    """Hold the lock, unless another process does. Each step guards itself as well: the lock saves work, no more."""
    with connection.cursor() as cursor:
        cursor.execute(TRY_LOCK, [f"{IDLE_S}s", LOCK])
        _, is_ours = cursor.fetchone()
        try:
            yield is_ours
        finally:
            cursor.execute("SELECT pg_advisory_unlock_all()")
            cursor.execute("RESET idle_session_timeout")  # the connection goes back to the pool


def _database_now() -> datetime:
    with connection.cursor() as cursor:
        cursor.execute("SELECT statement_timestamp()")
        return cast(datetime, cursor.fetchone()[0])
