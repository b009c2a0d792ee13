"""Leases: what a worker holds is its own until they run out, and it renews them for as long as it lives."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Any, cast

from django.db import DatabaseError, connection
from django.db.models.functions import Now

from chat.models import Claim, Run, Status
from chat.rows import Rows

logger = logging.getLogger(__name__)

RENEWALS_A_LEASE = 3
# One statement for all runs of a process, by the database's clock.
RENEW = """
    UPDATE chat_run
       SET lease_until = statement_timestamp() + %(lease)s
      FROM unnest(%(run_ids)s::uuid[], %(attempts)s::integer[]) AS held (run_id, attempt)
     WHERE chat_run.id = held.run_id AND chat_run.attempt = held.attempt AND chat_run.status = 'streaming'
 RETURNING chat_run.id, chat_run.attempt
"""


def renew(claims: Collection[Claim], lease: timedelta) -> set[Claim]:
    """Extend leases; returns those that are no longer ours."""
    run_ids: list[Any] = [claim.run_id for claim in claims]
    attempts: list[Any] = [claim.attempt for claim in claims]
    with connection.cursor() as cursor:
        cursor.execute(RENEW, {"lease": cast(Any, lease), "run_ids": run_ids, "attempts": attempts})
        renewed = {Claim(run_id, attempt) for run_id, attempt in cursor.fetchall()}
    return set(claims) - renewed


def give_back(claim: Claim) -> bool:
    """End a lease now, so that the next attempt need not wait for it; False when it is no longer ours."""
    ours = Run.objects.filter(pk=claim.run_id, attempt=claim.attempt, status=Status.STREAMING)
    return bool(ours.update(lease_until=Now()))


class Leases:
    """The leases of one worker process, renewed together."""

    def __init__(self, rows: Rows, lease: timedelta) -> None:
        self.lease = lease
        self._rows = rows
        self._held: dict[Claim, Callable[[], Awaitable[None]]] = {}

    @contextmanager
    def holding(self, claim: Claim, on_lost: Callable[[], Awaitable[None]]) -> Iterator[None]:
        """Renew the claim's lease meanwhile; `on_lost` is called once when somebody else has the run."""
        self._held[claim] = on_lost
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

    async def _renew_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self.lease.total_seconds() / RENEWALS_A_LEASE)
            try:
                await self._renew()
            except DatabaseError as error:
                # Nobody else can claim either while the database is away; the guarded UPDATEs decide afterwards.
                logger.warning("leases.not_renewed runs=%d error=%s", len(self._held), type(error).__name__)
            except Exception:
                logger.exception("leases.not_renewed runs=%d", len(self._held))

    async def _renew(self) -> None:
        if not self._held:
            return
        for claim in await self._rows.act(renew, tuple(self._held), self.lease):
            on_lost = self._held.pop(claim, None)
            if on_lost is not None:
                await on_lost()
