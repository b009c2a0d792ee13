"""The course of one attempt: claim, prompt, text, end."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from enum import Enum, auto
from functools import partial
from uuid import UUID

from django.db import InterfaceError, OperationalError, transaction
from django.db.models.functions import Now
from uuid6 import uuid7

from chat import context, endings
from chat.draft import Draft
from chat.leases import Leases, give_back
from chat.models import Chat, Claim, Message, Outcome, Role, Run, RunTaken, Status
from chat.releases import Releases
from chat.rows import DatabaseAway, Rows
from inference.engine import EngineDead, FinishReason, Generation, GenerationFailed, PromptRejected, Sampling
from inference.host import HandedBack, Workplace
from inference.stream_writer import Fenced, RunStream
from inference.tokens import Tokenizer, TokensError
from scheduler.models import Model

logger = logging.getLogger(__name__)

DATABASE_THREADS = 4
INTERNAL_ERROR = "internal_error"


class AttemptLost(Exception):
    """The run is another's by now: publish nothing."""


class Verdict(Enum):
    """Why an attempt must stop before its end."""

    HANDED_BACK = auto()
    LOST = auto()


@dataclass(eq=False, slots=True)
class Attempt:
    """A run that this worker has claimed."""

    run: Run
    claim: Claim
    verdict: Verdict | None = None

    @property
    def request_id(self) -> str:
        """What the engine knows it by: a fresh name for each attempt."""
        return f"{self.claim.run_id}:{self.claim.attempt}"

    def check(self) -> None:
        """Raises `HandedBack`, `AttemptLost` when it must stop."""
        match self.verdict:
            case Verdict.HANDED_BACK:
                raise HandedBack(self.request_id)
            case Verdict.LOST:
                raise AttemptLost(self.request_id)


class Attempts:
    """Carries runs through their attempts on one worker's engine, on the engine's event loop."""

    def __init__(self, workplace: Workplace, rows: Rows, leases: Leases, releases: Releases) -> None:
        self._worker_name = workplace.worker_name
        self._engine = workplace.engine
        self._writer = workplace.writer
        self._tokenizer = workplace.tokenizer
        self._rows = rows
        self._leases = leases
        self._releases = releases
        self._live: set[Attempt] = set()
        self._closing = False

    def limit(self) -> int:
        """As many runs as the engine has slots: each run in hand is in one, or on its way in or out."""
        return self._engine.slots

    def report(self) -> Mapping[str, float]:
        """The engine's slots and load."""
        return {"slots": self._engine.slots, **asdict(self._engine.load())}

    async def hand_back(self) -> None:
        """Stop what is being generated, and what is about to be."""
        self._closing = True
        stops = (self._stop(attempt, Verdict.HANDED_BACK) for attempt in list(self._live))
        await asyncio.gather(*stops, return_exceptions=True)  # the engine may be gone

    async def run(self, run_id: UUID) -> None:
        """Claim a run and bring it to its end; does nothing when it is not ours. Raises `HandedBack`, `EngineDead`."""
        attempt = await self._claim(run_id)
        if attempt is None:
            return
        self._live.add(attempt)
        self._releases.want(attempt.run)
        try:
            with self._leases.holding(attempt.claim, on_lost=partial(self._stop, attempt, Verdict.LOST)):
                await self._course(attempt)
        finally:
            self._live.discard(attempt)
            self._releases.want(attempt.run)

    async def _claim(self, run_id: UUID) -> Attempt | None:
        try:
            run, claim = await self._rows.insist(claim_run, run_id, self._worker_name, self._leases.lease)
        except RunTaken:
            logger.info("run.taken run=%s", run_id)
            return None
        except DatabaseAway as error:
            raise HandedBack(run_id) from error
        logger.info("run.claimed run=%s attempt=%d worker=%s", run_id, claim.attempt, self._worker_name)
        return Attempt(run, claim, Verdict.HANDED_BACK if self._closing else None)

    async def _course(self, attempt: Attempt) -> None:
        try:
            stream = await self._open(attempt)
            draft = Draft(self._tokenizer)
            error_code = await self._write(attempt, stream, draft)
            await self._end(attempt, stream, draft, error_code)
        except (AttemptLost, Fenced):
            logger.warning("run.lost run=%s attempt=%d", attempt.run.pk, attempt.claim.attempt)
        except (EngineDead, HandedBack):
            await self._give_back(attempt)
            raise
        except DatabaseAway as error:
            raise HandedBack(attempt.request_id) from error
        except Exception as error:
            _log_without_text(attempt, error)

    async def _open(self, attempt: Attempt) -> RunStream:
        """Fence off older attempts; what they wrote is void."""
        stream = await self._writer.open(attempt.run.pk, attempt.claim.attempt, attempt.run.model_id)
        if attempt.claim.attempt > 1:
            stream.reset(0)
        return stream

    async def _write(self, attempt: Attempt, stream: RunStream, draft: Draft) -> str:
        """Generate; returns the code of what went wrong, empty when nothing did. Raises what is not the run's fault."""
        try:
            await self._generate(attempt, stream, draft)
        except (GenerationFailed, PromptRejected, TokensError) as error:
            return error.code
        except (EngineDead, HandedBack, AttemptLost, Fenced, OperationalError, InterfaceError):
            raise
        except Exception as error:
            _log_without_text(attempt, error)
            return INTERNAL_ERROR
        return ""

    async def _generate(self, attempt: Attempt, stream: RunStream, draft: Draft) -> None:
        attempt.check()
        prompt = await self._rows.insist(context.for_run, attempt.run)
        generation = Generation(
            attempt.request_id, prompt.ids, attempt.run.max_output_tokens, sampling_of(attempt.run.model)
        )
        async with aclosing(self._engine.generate(generation)) as steps:
            async for step in steps:
                if step.finish_reason in {None, FinishReason.ABORT}:
                    attempt.check()
                stream.push(draft.add(step), step.token_ids)
        if draft.finish_reason is FinishReason.ABORT:
            raise HandedBack(attempt.request_id)  # by the engine itself, which is going down
        stream.push(draft.close(), ())

    async def _end(self, attempt: Attempt, stream: RunStream, draft: Draft, error_code: str) -> None:
        await stream.flush()
        outcome = outcome_of(attempt.run, draft, error_code)
        if not await self._rows.insist(finish_run, attempt.run, attempt.claim.attempt, outcome, draft.text, uuid7()):
            raise AttemptLost(attempt.request_id)
        logger.info(
            "run.ended run=%s attempt=%d status=%s code=%s output_tokens=%d",
            *(attempt.run.pk, attempt.claim.attempt, outcome.status, error_code or "-", outcome.output_tokens),
        )
        await stream.end(endings.ended(attempt.run, draft.text))

    async def _stop(self, attempt: Attempt, verdict: Verdict) -> None:
        attempt.verdict = attempt.verdict or verdict
        await self._engine.abort(attempt.request_id)

    async def _give_back(self, attempt: Attempt) -> None:
        """Let the next attempt begin at once: its message is about to go back to the queue."""
        logger.warning("run.handed_back run=%s attempt=%d", attempt.run.pk, attempt.claim.attempt)
        try:
            await self._rows.act(give_back, attempt.claim)
        except DatabaseAway as error:
            logger.warning("run.lease_left run=%s error=%s", attempt.run.pk, type(error).__name__)


@asynccontextmanager
async def attempts_on(workplace: Workplace, lease: timedelta) -> AsyncIterator[Attempts]:
    """The worker's attempts, with the tasks beside them that renew leases and release the next runs."""
    rows = Rows(DATABASE_THREADS)
    leases, releases = Leases(rows, lease), Releases()
    try:
        async with leases.renewing(), releases.releasing():
            yield Attempts(workplace, rows, leases, releases)
    finally:
        rows.close()


def claim_run(run_id: UUID, worker: str, lease: timedelta) -> tuple[Run, Claim]:
    """Take a run, and read what its attempt needs. Raises `RunTaken`."""
    claim = Run.objects.claim(run_id, worker, lease)
    return Run.objects.select_related("model", "prompt").get(pk=run_id), claim


def finish_run(run: Run, attempt: int, outcome: Outcome, text: str, answer_id: UUID) -> bool:
    """End a run with its message, all or nothing; False when another attempt has it.

    Safe to repeat with the same `answer_id`. Brings `run` in step with its row.
    """
    message_id = answer_id if text or outcome.status is Status.DONE else None
    with transaction.atomic():
        # The chat first, as whoever asks in it does: the other way round the two could wait for each other.
        Chat.objects.filter(pk=run.chat_id).update(updated_at=Now())
        ours = run.finish(attempt, outcome, message_id)
        if not ours:
            transaction.set_rollback(True)
        elif message_id is not None:
            _store_answer(run, message_id, text)
    if not (ours or _has_ended_so(run, attempt, outcome, message_id)):
        return False
    _mirror(run, outcome, message_id)
    return True


def _store_answer(run: Run, message_id: UUID, text: str) -> None:
    Message.objects.create(
        id=message_id,
        chat_id=run.chat_id,
        position=run.prompt.position + 1,
        role=Role.ASSISTANT,
        content=text,
        token_count=Tokenizer.load(run.model.source).count(text),
    )


def _has_ended_so(run: Run, attempt: int, outcome: Outcome, message_id: UUID | None) -> bool:
    """An earlier call did it, and its reply was lost."""
    return Run.objects.filter(pk=run.pk, attempt=attempt, status=outcome.status, answer=message_id).exists()


def _mirror(run: Run, outcome: Outcome, message_id: UUID | None) -> None:
    run.answer_id = message_id
    run.status = outcome.status
    run.finish_reason = outcome.finish_reason
    run.input_tokens = outcome.input_tokens
    run.cached_tokens = outcome.cached_tokens
    run.output_tokens = outcome.output_tokens
    run.error_code = outcome.error_code
    run.error_detail = outcome.error_detail


def outcome_of(run: Run, draft: Draft, error_code: str) -> Outcome:
    """How a run ended that wrote `draft`; `error_code` is empty when nothing went wrong."""
    return Outcome(
        status=Status.FAILED if error_code else Status.DONE,
        finish_reason="error" if error_code else str(draft.finish_reason),
        input_tokens=run.input_tokens,
        cached_tokens=draft.cached_tokens,
        output_tokens=draft.output_tokens,
        error_code=error_code,
        error_detail=endings.DETAILS[error_code] if error_code else "",
        first_token_age=draft.first_token_age,
    )


def sampling_of(model: Model) -> Sampling:
    """How the model's row says that tokens are chosen."""
    return Sampling(temperature=float(model.temperature), top_p=float(model.top_p))


def _log_without_text(attempt: Attempt, error: Exception) -> None:
    """An error's own words may quote a row, hence a message: its kind and place must do."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    logger.error(
        "run.broke run=%s attempt=%d error=%s at=%s:%s",
        *(attempt.run.pk, attempt.claim.attempt, type(error).__name__, place.filename, place.lineno),
    )
