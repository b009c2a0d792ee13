"""Ending a run before its time: whoever wants it, and wherever the run is."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from chat import accounting, announcements, burials, endings, last_words, problems, queueing
from chat.models import CANCELLED, Run, Status


def cancel(run: Run) -> Run:
    """End a run: at once where no worker has it, else as soon as its worker hears of it. Returns it as it is now.

    Idempotent; a run that has ended stays as it is. Raises `NotFound` when it was deleted.

    Each step is one guarded UPDATE, and a run only ever moves on to what the next step looks for: from its queue to a
    worker, from a worker that lives to one that is silent.
    """
    if Run.objects.cancel_queued(run.pk):
        ended = _read(run)
        _leave_queue(ended)
        return ended
    holder = Run.objects.request_cancel(run.pk)
    if holder is not None and holder.is_silent:
        burials.bury(run.pk)  # nobody would hear of it, and its chat could not be left
    elif holder is not None:
        last_words.nudge(holder.worker, run.pk)
    return _read(run)


def expire(run: Run) -> bool:
    """End a run that waits for a worker as failed, since its time is over; False when it does not wait any more."""
    code = endings.QUEUE_TIMEOUT
    if not Run.objects.expire_queued(run.pk, code, endings.DETAILS[code]):
        return False
    with suppress(problems.NotFound):
        _leave_queue(_read(run))
    return True


def dismiss(runs: Iterable[Run]) -> None:
    """Make readers, workers and queues let go of runs that were deleted while they were live, given as they were."""
    for run in runs:
        had_begun = run.status == Status.STREAMING
        if had_begun:
            last_words.nudge(run.worker, run.pk)
            # An attempt that nobody makes: what the worker still writes is refused.
            run.attempt += 1
        run.status, run.finish_reason = Status.CANCELLED, CANCELLED
        if run.kind == Run.Kind.REPLY:
            last_words.tell_deletion(run)
        if not queueing.withdraw(run) and had_begun:
            queueing.correct(run)


def _leave_queue(ended: Run) -> None:
    if ended.kind != Run.Kind.REPLY:
        queueing.withdraw(ended)
        return
    last_words.tell_end(ended, "")
    queueing.withdraw(ended)
    accounting.settle(ended)
    announcements.ended(ended)


def _read(run: Run) -> Run:
    found = Run.objects.select_related("chat").filter(pk=run.pk).first()
    if found is None:
        raise problems.NotFound
    return found
