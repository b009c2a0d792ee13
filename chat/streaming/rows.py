"""What a stream's reader asks of Postgres: short, in a thread, with the connection given back before it returns."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

from asgiref.sync import sync_to_async
from django.db import connections

from chat import endings
from chat.models import TERMINAL, Run
from inference.streams import Ended

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ended; `text` is None where it left no message."""

    attempt: int
    text: str | None
    ended: Ended


async def ask(question: Callable[[], T]) -> T:
    """Answer `question` in the stream thread. An open stream must hold no connection, so it is closed behind it."""

    def answer() -> T:
        try:
            return question()
        finally:
            connections.close_all()

    return await sync_to_async(answer)()


async def ending(run_id: UUID) -> Ending | None:
    """How the run ended, or None while it is live. Raises `Run.DoesNotExist`."""
    return await ask(lambda: _ending(run_id))


def _ending(run_id: UUID) -> Ending | None:
    run = Run.objects.select_related("answer").get(pk=run_id)
    if run.status not in TERMINAL:
        return None
    text = run.answer.content if run.answer else None
    return Ending(run.attempt, text, endings.ended(run, text or ""))


async def ended_among(run_ids: Collection[UUID]) -> list[UUID]:
    """Those of the runs that are over, in one query. A run that is deleted is over too."""
    return await ask(lambda: _ended_among(run_ids))


def _ended_among(run_ids: Collection[UUID]) -> list[UUID]:
    live = set(Run.objects.live().filter(pk__in=run_ids).values_list("pk", flat=True))
    return [run_id for run_id in run_ids if run_id not in live]
