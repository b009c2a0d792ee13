"""Runs that nobody waits for: what is due behind a reply, and how a worker brings it to its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Protocol, cast

from django.conf import settings
from django.db import IntegrityError, transaction

from chat import folding, outcomes, queueing, titles
from chat.attempt import INTERNAL_ERROR, Attempt, AttemptLost, Cancelled, log_without_text
from chat.context import Prompt
from chat.draft import Counts
from chat.finishing import has_ended_so, mirror
from chat.gauge import Gauge
from chat.judging import judge
from chat.models import Message, Outcome, Run, Status
from chat.pace import Pace
from chat.rows import DatabaseAway, Rows
from chat.sampling import sampling_of
from inference.engine import Engine, EngineDead, FinishReason, Generation, GenerationFailed, PromptRejected, Sampling
from inference.host import HandedBack
from inference.metering import Meter
from inference.tokens import TokensError

logger = logging.getLogger(__name__)

# Without a word of the engine's, its own waiting included. Such a run has failed; the next reply is followed by one.
SILENCE_S = 60.0
TIMEOUT, EMPTY = "background_timeout", "background_empty"


class Chore(Protocol):
    """What a kind of background run is for. All but `told` in a thread that may use rows."""

    def due(self, reply: Run) -> Run | None:
        """The run, not stored, that is to follow a reply which has just ended. Raises `TokensError`."""

    def prompt(self, run: Run) -> Prompt:
        """What it asks of the model: the same ids each time. Raises `TokensError`, `Message.DoesNotExist`."""

    def prefix(self, run: Run, text: str) -> Sequence[int]:
        """What is to be computed before the outcome is used; nothing, mostly."""

    def accept(self, run: Run, text: str, warm_tokens: int) -> bool:
        """Store what it came to, in the transaction that ends it; False where the text is of no use."""

    def told(self, run: Run) -> None:
        """Say so, behind the commit."""


CHORES: Mapping[str, Chore] = {
    Run.Kind.TITLE: cast(Chore, titles),
    Run.Kind.SUMMARY: cast(Chore, folding),
}


def follow_up(reply: Run) -> None:
    """Store and queue what is due behind a reply that has ended. They reserve nothing, and are charged to nobody."""
    if not (reply.answer_id and reply.chat.is_kept and settings.BACKGROUND_RUNS):
        return
    for chore in CHORES.values():
        if (run := chore.due(reply)) and _stored(run):
            queueing.admit(run)


def _stored(run: Run) -> bool:
    """False where there is one already, or the chat is gone."""
    try:
        with transaction.atomic():
            run.save(force_insert=True)
    except IntegrityError:
        return False
    return True


def finish(run: Run, attempt: int, outcome: Outcome, text: str, warm_tokens: int) -> bool:
    """End a background run with what it came to, all or nothing; False when it is no longer ours. Safe to repeat."""
    if outcome.status is Status.DONE and not _accepted(run, attempt, outcome, text, warm_tokens):
        outcome = outcomes.failed(run, Counts(outcome.output_tokens, outcome.cached_tokens), EMPTY)
    if not (run.finish(attempt, outcome, None) or has_ended_so(run, attempt, outcome, None)):
        return False
    mirror(run, outcome, None)
    if outcome.status is Status.DONE:
        CHORES[run.kind].told(run)
    return True


def _accepted(run: Run, attempt: int, outcome: Outcome, text: str, warm_tokens: int) -> bool:
    """Store what it came to, with its end; False where that is of no use, or another run was first."""
    try:
        with transaction.atomic():
            ours = run.finish(attempt, outcome, None)
            is_used = not ours or CHORES[run.kind].accept(run, text, warm_tokens)
            transaction.set_rollback(not is_used)
    except IntegrityError:
        return False
    return is_used


class BackgroundCourse:
    """How one attempt of a background run goes: no stream; the next attempt begins anew."""

    def __init__(self, engine: Engine, rows: Rows, meter: Meter, gauge: Gauge) -> None:
        self._engine = engine
        self._rows = rows
        self._meter, self._gauge = meter, gauge

    async def produce(self, attempt: Attempt) -> None:
        """Bring it to its end. Raises `AttemptLost`, `HandedBack`, `EngineDead`, `DatabaseAway`."""
        outcome, warm_tokens = await self._outcome(attempt)
        text = attempt.draft.text
        if not await self._rows.insist(finish, attempt.run, attempt.claim.attempt, outcome, text, warm_tokens):
            raise AttemptLost(attempt.request_id)

    async def _outcome(self, attempt: Attempt) -> tuple[Outcome, int]:
        run, draft = attempt.run, attempt.draft
        try:
            warm_tokens = await self._write(attempt)
        except TimeoutError:
            return outcomes.failed(run, draft.counts, TIMEOUT), 0
        except Cancelled:
            return outcomes.cancelled(run, draft.counts), 0
        except (GenerationFailed, PromptRejected, TokensError) as error:
            return outcomes.failed(run, draft.counts, error.code), 0
        except (EngineDead, HandedBack, AttemptLost, Message.DoesNotExist, *DatabaseAway):
            raise
        except Exception as error:
            log_without_text(attempt, error)
            return outcomes.failed(run, draft.counts, INTERNAL_ERROR), 0
        return outcomes.done(run, draft), warm_tokens

    async def _write(self, attempt: Attempt) -> int:
        """Generate, then compute what the outcome's users begin with; returns how many tokens of it."""
        run, chore = attempt.run, CHORES[attempt.run.kind]
        attempt.check()
        prompt = await self._rows.insist(chore.prompt, run)
        generation = Generation(attempt.request_id, prompt.ids, run.max_output_tokens, sampling_of(run))
        async with attempt.visit.inside(generation.most_tokens, is_patient=True):
            await self._generate(attempt, generation)
            return await self._warmed(attempt, generation.most_tokens)

    async def _generate(self, attempt: Attempt, generation: Generation) -> None:
        run, draft, loop = attempt.run, attempt.draft, asyncio.get_running_loop()
        pace = Pace(self._meter.tallies[run.room_tier], self._gauge.prefill, run, attempt.claim, is_first=False)
        async with asyncio.timeout(SILENCE_S) as silence, aclosing(self._engine.generate(generation)) as steps:
            attempt.check()
            with self._gauge.generating():
                pace.enter(len(generation.prompt_ids))
                async for step in steps:
                    silence.reschedule(loop.time() + SILENCE_S)
                    judge(self._meter, attempt, generation, step)
                    if step.finish_reason in {None, FinishReason.ABORT}:
                        attempt.check()
                    pace.note(step)
                    draft.add(step)
        if draft.finish_reason is FinishReason.ABORT:
            raise HandedBack(attempt.request_id)
        draft.close()

    async def _warmed(self, attempt: Attempt, most_tokens: int) -> int:
        """How many tokens were computed for who uses the outcome; what is written is kept, whatever becomes of it."""
        try:
            async with asyncio.timeout(SILENCE_S):
                return await self._warm(attempt, most_tokens)
        except (TimeoutError, GenerationFailed, PromptRejected, TokensError, HandedBack, *DatabaseAway) as error:
            logger.warning("background.not_warmed run=%s error=%s", attempt.run.pk, type(error).__name__)
            return 0

    async def _warm(self, attempt: Attempt, most_tokens: int) -> int:
        """With its own room in the cache only; without, the first turn of the epoch computes it."""
        ids = await self._rows.act(CHORES[attempt.run.kind].prefix, attempt.run, attempt.draft.text)
        if not ids or len(ids) >= most_tokens:
            return 0
        warming = Generation(f"{attempt.request_id}:warm", ids, 1, Sampling())
        async with aclosing(self._engine.generate(warming)) as steps:
            async for _ in steps:
                attempt.check()
        return len(ids)
