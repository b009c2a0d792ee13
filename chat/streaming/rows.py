"""What a stream's reader asks of Postgres: short, in a thread, with the connection given back before it returns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeVar
from uuid import UUID

from asgiref.sync import sync_to_async
from django.db import connections

from chat import endings
from chat.models import TERMINAL, Checkpoint, Run
from chat.streaming.written import Piece, Written, fold

T = TypeVar("T")


async def ask(question: Callable[[], T]) -> T:
    """Answer `question` in the stream thread. An open stream must hold no connection, so it is closed behind it."""

    def answer() -> T:
        try:
            return question()
        finally:
            connections.close_all()

    return await sync_to_async(answer)()


async def written(run_id: UUID) -> Written:
    """What is written of a run so far. Raises `Run.DoesNotExist`."""
    found = await written_of([run_id])
    if run_id not in found:
        raise Run.DoesNotExist
    return found[run_id]


async def written_of(run_ids: Collection[UUID]) -> Mapping[UUID, Written]:
    """What is written of each run so far, in two queries. One that is deleted is left out."""
    return await ask(lambda: _written_of(run_ids))


def _written_of(run_ids: Collection[UUID]) -> dict[UUID, Written]:
    # Rows first: a checkpoint read before its row could be of text that this row's attempt has voided.
    runs = list(Run.objects.select_related("answer").filter(pk__in=run_ids))
    pieces = _pieces(run.pk for run in runs if run.status not in TERMINAL)
    return {run.pk: _written(run, pieces[run.pk]) for run in runs}


def _pieces(run_ids: Iterable[UUID]) -> dict[UUID, list[Piece]]:
    columns = ("run_id", "attempt", "offset", "text")
    pieces: dict[UUID, list[Piece]] = defaultdict(list)
    found = Checkpoint.objects.filter(run__in=list(run_ids)).order_by("attempt", "offset").values_list(*columns)
    for run_id, attempt, offset, text in found:
        pieces[run_id].append(Piece(attempt, offset, text))
    return pieces


def _written(run: Run, pieces: Iterable[Piece]) -> Written:
    resumed_at = run.resumptions
    if run.status in TERMINAL:
        text = run.answer.content if run.answer else ""
        return Written(run.attempt, text, resumed_at, endings.ended(run, text))
    known = [piece for piece in pieces if piece.attempt <= run.attempt]
    return Written(run.attempt, fold(known, resumed_at), resumed_at)


async def ended_among(run_ids: Collection[UUID]) -> list[UUID]:
    """Those of the runs that are over, in one query. A run that is deleted is over too."""
    return await ask(lambda: _ended_among(run_ids))


def _ended_among(run_ids: Collection[UUID]) -> list[UUID]:
    live = set(Run.objects.live().filter(pk__in=run_ids).values_list("pk", flat=True))
    return [run_id for run_id in run_ids if run_id not in live]
