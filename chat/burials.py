"""The end of runs that no worker will bring to theirs: with the text that their readers have."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

from django.conf import settings
from uuid6 import uuid7

from chat import accounting, announcements, last_words, outcomes, queueing
from chat.draft import Counts
from chat.emitted import Emitted, agree
from chat.finishing import finish_run
from chat.models import Claim, Outcome, Run, RunTaken

logger = logging.getLogger(__name__)

# Who claims such a run. Workers are named `model@host`.
UNDERTAKER = "undertaker"


def bury(run_id: UUID) -> bool:
    """End a run whose worker has gone silent: cancelled where that was asked for, else failed.

    False when somebody else has it, or it is deleted.
    """
    try:
        claim = Run.objects.claim(run_id, UNDERTAKER, timedelta(seconds=settings.LEASE_S), is_last=True)
        run = Run.objects.claimed(claim)
    except RunTaken:
        return False
    end = outcomes.cancelled if run.cancel_requested_at else outcomes.worker_lost
    if run.kind != Run.Kind.REPLY:
        return run.finish(claim.attempt, end(run, Counts(output_tokens=0)), None)
    if not end_as_told(run, claim, uuid7(), end):
        return False
    logger.warning(
        "run.ended run=%s attempt=%d status=%s code=%s output_tokens=%d",
        *(run.pk, claim.attempt, run.status, run.error_code or "-", run.output_tokens),
    )
    announcements.ended(run)
    queueing.correct(run)
    return True


def end_as_told(run: Run, claim: Claim, answer_id: UUID, end: Callable[[Run, Counts], Outcome]) -> bool:
    """End a claimed run without writing any more of it; False when it is another's.

    Safe to repeat with the same `answer_id`.
    """
    told = last_words.take_over(run)
    emitted = told.or_later(Emitted.put_by(run.checkpoints.all(), run.resumptions))
    Run.objects.resume(claim, len(emitted.text) if agree(emitted.text, told.text) else 0)
    outcome = end(run, Counts(output_tokens=len(emitted.token_ids), token_ids=emitted.token_ids))
    ours = finish_run(run, claim.attempt, outcome, emitted.text, answer_id)
    if ours:
        last_words.tell_end(run, emitted.text)
        accounting.settle(run)
    return ours
