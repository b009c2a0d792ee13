"""Leases: what a worker holds is its own until they run out, and it renews them for as long as it lives."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, cast

from django.db import DatabaseError
from django.db.models import F
from django.db.models.functions import Now

from chat.draft import Draft, Piece
from chat.models import Claim, Run, Status
from chat.rows import Rows
from chatsite.database.prepared import planned

logger = logging.getLogger(__name__)

RENEWALS_A_LEASE = 3
# After a renewal that failed: the database may be back, and the lease runs.
RETRY_S = 0.5
# One statement for all runs of a process, by the database's clock. Repeated after a lost reply, it stores the same.
RENEW = """
    WITH held AS (
        SELECT run_id, attempt, start, text, token_ids::integer[], first_token_age
          FROM unnest(%(run_ids)s::uuid[], %(attempts)s::integer[], %(starts)s::integer[], %(texts)s::text[],
                      %(token_ids)s::text[], %(first_token_ages)s::interval[])
               AS held (run_id, attempt, start, text, token_ids, first_token_age)
    ), renewed AS (
        UPDATE chat_run
           SET lease_until = statement_timestamp() + %(lease)s,
               first_token_at = coalesce(first_token_at, statement_timestamp() - first_token_age)
          FROM held
         WHERE chat_run.id = held.run_id AND chat_run.attempt = held.attempt AND chat_run.status = 'streaming'
     RETURNING held.run_id, held.attempt, cancel_requested_at IS NOT NULL AS is_cancelled
    ), put_by AS (
        INSERT INTO chat_checkpoint (run_id, attempt, "offset", text, token_ids)
        SELECT run_id, attempt, start, text, token_ids FROM held JOIN renewed USING (run_id, attempt) WHERE text <> ''
            ON CONFLICT (run_id, attempt, "offset")
            DO UPDATE SET text = excluded.text, token_ids = excluded.token_ids
    )
    SELECT run_id, attempt, is_cancelled FROM renewed
"""


@dataclass(frozen=True, slots=True)
class Progress:
    """What an attempt has to put by when its lease is renewed."""

    claim: Claim
    piece: Piece
    first_token_age: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Renewal:
    """What a renewal brought to light: claims that are no longer ours, and those of runs that are to stop."""

    lost: frozenset[Claim]
    cancelled: frozenset[Claim]


@dataclass(frozen=True, slots=True)
class Holding:
    """A claim's draft, and whom to tell: once when the claim is lost, at each renewal when its run is to stop."""

    draft: Draft
    on_lost: Callable[[], None]
    on_cancel: Callable[[], None]


def renew(held: Collection[Progress], lease: timedelta) -> Renewal:
    """Extend leases, and store what their runs have produced."""
    columns: dict[str, list[Any]] = {
        "run_ids": [progress.claim.run_id for progress in held],
        "attempts": [progress.claim.attempt for progress in held],
        "starts": [progress.piece.offset for progress in held],
        "texts": [progress.piece.text for progress in held],
        # Arrays of unequal lengths are no array of Postgres.
        "token_ids": [f"{{{','.join(map(str, progress.piece.token_ids))}}}" for progress in held],
        "first_token_ages": [progress.first_token_age for progress in held],
    }
    with planned() as cursor:
        cursor.execute(RENEW, {"lease": cast(Any, lease), **columns})
        renewed = {Claim(run_id, attempt): is_cancelled for run_id, attempt, is_cancelled in cursor.fetchall()}
    cancelled = frozenset(claim for claim, is_cancelled in renewed.items() if is_cancelled)
    return Renewal(lost=frozenset(progress.claim for progress in held) - renewed.keys(), cancelled=cancelled)


def give_back(claim: Claim, *, is_blameless: bool) -> bool:
    """End a lease now, so that the next attempt need not wait for it; False when it is no longer ours.

    An attempt that ended without blame, by a drain, does not count against its run.
    """
    ours = Run.objects.filter(pk=claim.run_id, attempt=claim.attempt, status=Status.STREAMING)
    return bool(ours.update(lease_until=Now(), hand_backs=F("hand_backs") + int(is_blameless)))


class Leases:
    """The leases of one worker process, renewed together.

    In a thread of their own: acts that wait for a locked row, or for Redis, must not cost other runs their leases. One
    thread, so that no renewal that is on its way comes behind a lease's end and undoes it.
    """

    def __init__(self, lease: timedelta) -> None:
        self.lease = lease
        self._rows = Rows(threads=1, name="leases")
        self._held: dict[Claim, Holding] = {}

    @contextmanager
    def holding(self, claim: Claim, holding: Holding) -> Iterator[None]:
        """Renew the claim's lease meanwhile."""
        self._held[claim] = holding
        try:
            yield
        finally:
            self._held.pop(claim, None)

    @asynccontextmanager
    async def renewing(self) -> AsyncIterator[None]:
        """Renew what is held, in a task beside."""
        task = asyncio.create_task(self._renew_for_ever(), name="leases")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})
            self._rows.close()

    async def give_back(self, claim: Claim, *, is_blameless: bool) -> bool:
        """Renew a claim's lease no more, and end it: see the function."""
        self._held.pop(claim, None)
        return await self._rows.act(partial(give_back, claim, is_blameless=is_blameless))

    async def _renew_for_ever(self) -> None:
        pause_s = period_s = self.lease.total_seconds() / RENEWALS_A_LEASE
        while True:
            await asyncio.sleep(pause_s)
            pause_s = min(RETRY_S, period_s)
            try:
                await self._renew()
                pause_s = period_s
            except DatabaseError as error:
                # Nobody else can claim either while the database is away; the guarded UPDATEs decide afterwards.
                logger.warning("leases.not_renewed runs=%d error=%s", len(self._held), type(error).__name__)
            except Exception:
                logger.exception("leases.not_renewed runs=%d", len(self._held))

    async def _renew(self) -> None:
        if not self._held:
            return
        held = [_progress(claim, holding.draft) for claim, holding in self._held.items()]
        renewal = await self._rows.act(renew, held, self.lease)
        for progress in held:
            if progress.claim in self._held:
                self._held[progress.claim].draft.put_by(progress.piece)
        for claim in renewal.lost:
            if claim in self._held:
                self._held.pop(claim).on_lost()
        for claim in renewal.cancelled:
            if claim in self._held:
                self._held[claim].on_cancel()


def _progress(claim: Claim, draft: Draft) -> Progress:
    return Progress(claim, draft.unsaved(), draft.first_token_age)
