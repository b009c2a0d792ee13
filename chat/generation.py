"""The course of one attempt: claim, prompt, text, end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from functools import partial
from uuid import UUID

from uuid6 import uuid7

from chat import accounting, announcements, background, context, endings, hot_contexts, outcomes
from chat.aside import Aside, aside
from chat.attempt import INTERNAL_ERROR, Attempt, AttemptLost, Cancelled, Summons, Verdict, log_without_text
from chat.background import BackgroundCourse
from chat.burials import end_as_told
from chat.context import Prompt
from chat.draft import Draft
from chat.finishing import finish_run
from chat.gauge import Gauge
from chat.judging import judge
from chat.leases import Holding, Leases
from chat.models import Chat, Claim, Message, Outcome, Run, RunTaken
from chat.pace import Pace, in_hand
from chat.releases import Releases
from chat.resumption import resume
from chat.rows import DatabaseAway, Rows
from chat.sampling import sampling_of
from chat.serving import Served
from chat.wishes import Wishes
from chatsite.database.prepared import Prepared
from inference.engine import EngineDead, FinishReason, Generation, GenerationFailed, PromptRejected
from inference.gate import Gate
from inference.host import HandedBack, Workplace
from inference.metering import Meter
from inference.rendering import Answer
from inference.stream_writer import Fenced, RunStream
from inference.tokens import TokensError

logger = logging.getLogger(__name__)

DATABASE_THREADS = 4
CHAT = Prepared(lambda chat: Chat.objects.filter(pk=chat), chat=UUID(int=1))


@dataclass(frozen=True, slots=True)
class Beside:
    """What is done beside the runs' own course: open pages are told, and what is due behind a reply is queued."""

    announcements: Aside
    follow_ups: Aside


class Attempts:
    """Carries runs through their attempts on one worker's engine, on the engine's event loop."""

    def __init__(self, workplace: Workplace, rows: Rows, leases: Leases, releases: Releases, beside: Beside) -> None:
        self._worker_name = workplace.worker_name
        self._served = Served.at(workplace)
        self._engine = workplace.engine
        self._streams = workplace.streams
        self._writer = workplace.writer
        self._tokenizer = workplace.tokenizer
        self._rows = rows
        self._leases = leases
        self._releases = releases
        self._announcements, self._follow_ups = beside.announcements, beside.follow_ups
        self._gate = Gate(workplace.engine, workplace.on_room)
        self._gauge = Gauge(workplace.worker_name, self._gate)
        releases.tell_of(self._gauge.report)
        self.meter = Meter()
        self._background = BackgroundCourse(workplace.engine, rows, self.meter, self._gauge)
        self._summonses: set[Summons] = set()
        self._live: set[Attempt] = set()
        self._aborts: set[asyncio.Task[None]] = set()
        self._closing = False

    def limit(self) -> int:
        """As many runs as the engine has slots and blocks for; each in hand is in, or on its way in or out."""
        return self._gate.limit

    def report(self) -> Mapping[str, float]:
        """The engine's slots and load, and what of its KV cache is left to give."""
        return {"slots": self._engine.slots, **asdict(self._engine.load()), **self._gate.report()}

    async def take_no_more(self) -> None:
        """Have nothing kept for this worker from now on."""
        await self._releases.leave()

    async def hand_back(self) -> None:
        """Stop what is being generated, and what is about to be."""
        self._closing = True
        for attempt in list(self._live):
            self._stop(attempt, Verdict.HANDED_BACK)
        await asyncio.gather(*self._aborts, return_exceptions=True)  # the engine may be gone

    def cancel(self, run_id: UUID) -> None:
        """Stop a run and keep its text so far; a run that is not here is no error."""
        for summons in self._summonses:
            summons.is_cancelled = summons.is_cancelled or summons.run_id == run_id
        for attempt in self._live:
            if attempt.run.pk == run_id:
                self._stop(attempt, Verdict.CANCELLED)

    async def run(self, run_id: UUID) -> int:
        """Claim a run and bring it to its end; returns what it came to. Raises `HandedBack`, `EngineDead`.

        Does nothing when it is not ours.
        """
        with self._gate.expecting() as visit:
            attempt = await self._summoned(Summons(run_id, visit))
            if attempt is None:
                self._releases.want_all()
                return 0
            await self._carry(attempt)
            return attempt.run.drawn

    async def _carry(self, attempt: Attempt) -> None:
        self._live.add(attempt)
        self._releases.claimed(attempt.run)
        try:
            with (
                in_hand(self.meter, attempt.run, attempt.claim),
                self._leases.holding(attempt.claim, self._holding(attempt)),
            ):
                await self._course(attempt)
        finally:
            self._live.discard(attempt)
            self._releases.ended(attempt.run)

    def _holding(self, attempt: Attempt) -> Holding:
        # What a background run writes is nobody's to go on with.
        kept = attempt.draft if attempt.run.kind == Run.Kind.REPLY else Draft(self._tokenizer)
        return Holding(
            kept,
            on_lost=partial(self._stop, attempt, Verdict.LOST),
            on_cancel=partial(self._stop, attempt, Verdict.CANCELLED),
        )

    async def _summoned(self, summons: Summons) -> Attempt | None:
        """The run's next attempt; None when there is none for us."""
        # A cancel between the claim and the moment it is known here would find nobody.
        self._summonses.add(summons)
        try:
            attempt = await self._claim(summons)
        finally:
            self._summonses.discard(summons)
        if attempt is not None and (summons.is_cancelled or attempt.run.cancel_requested_at is not None):
            attempt.verdict = Verdict.CANCELLED
        return attempt

    async def _claim(self, summons: Summons) -> Attempt | None:
        run_id = summons.run_id
        try:
            run, claim, prompt = await self._rows.insist(
                take_run, run_id, self._worker_name, self._leases.lease, self._served
            )
        except RunTaken:
            logger.info("run.taken run=%s", run_id)
            return None
        except DatabaseAway as error:
            raise HandedBack(run_id) from error
        logger.info("run.claimed run=%s attempt=%d worker=%s", run_id, claim.attempt, self._worker_name)
        verdict = Verdict.HANDED_BACK if self._closing else None
        draft = Draft(self._tokenizer, Wishes.of(run).stop)
        return Attempt(run, claim, draft, summons.visit, verdict, prompt)

    async def _course(self, attempt: Attempt) -> None:
        try:
            if attempt.run.kind != Run.Kind.REPLY:
                await self._background.produce(attempt)
                self._log_end(attempt)
            elif attempt.verdict is Verdict.CANCELLED:
                await self._end_unwritten(attempt)
            else:
                await self._produce(attempt)
        except (AttemptLost, Fenced, Message.DoesNotExist):
            logger.warning("run.lost run=%s attempt=%d", attempt.run.pk, attempt.claim.attempt)
        except HandedBack:
            # Not where the engine let go of it unasked: it might do so each time, for ever.
            await self._give_back(attempt, is_blameless=attempt.verdict is Verdict.HANDED_BACK)
            raise
        except EngineDead:
            await self._give_back(attempt, is_blameless=False)
            raise
        except DatabaseAway as error:
            raise HandedBack(attempt.request_id) from error
        except Exception as error:
            log_without_text(attempt, error)

    async def _end_unwritten(self, attempt: Attempt) -> None:
        """End a run that was cancelled before this attempt, with what those before it wrote."""
        if not await self._rows.insist(end_as_told, attempt.run, attempt.claim, uuid7(), outcomes.cancelled):
            raise AttemptLost(attempt.request_id)
        self._note_end(attempt)

    async def _produce(self, attempt: Attempt) -> None:
        self._announcements.do(announcements.streaming, attempt.run)
        names = attempt.run.pk, attempt.claim.attempt, attempt.run.model_id
        if attempt.claim.attempt == 1:
            stream = self._writer.begin(*names)  # beside the engine, which is waited for anyway
        else:
            stream = await self._writer.open(*names)  # what is read from here on is written by nobody before us
            await resume(attempt, stream, self._streams, self._rows, self._tokenizer)
        outcome = await self._write(attempt, stream)
        await self._end(attempt, stream, attempt.draft.text, outcome)

    async def _write(self, attempt: Attempt, stream: RunStream) -> Outcome:
        """Generate; returns how that went. Raises what is not the run's fault."""
        run, draft = attempt.run, attempt.draft
        try:
            await self._generate(attempt, stream)
        except Cancelled:
            return outcomes.cancelled(run, draft.counts)
        except (GenerationFailed, PromptRejected, TokensError) as error:
            return outcomes.failed(run, draft.counts, error.code)
        except (EngineDead, HandedBack, AttemptLost, Fenced, Message.DoesNotExist, *DatabaseAway):
            raise
        except Exception as error:
            log_without_text(attempt, error)
            return outcomes.failed(run, draft.counts, INTERNAL_ERROR)
        return outcomes.done(run, draft)

    async def _generate(self, attempt: Attempt, stream: RunStream) -> None:
        draft = attempt.draft
        attempt.check()
        if attempt.prompt is None:
            attempt.prompt = await self._rows.insist(prompt_of, attempt.run, attempt.claim)
            attempt.check()  # what came meanwhile found nothing to abort
        prompt = attempt.prompt
        if draft.is_stopped:
            draft.finish_reason = FinishReason.STOP
        elif generation := continued(attempt, prompt.ids):
            await self._generate_rest(attempt, stream, generation)
        else:
            draft.finish_reason = FinishReason.LENGTH
        stream.push(draft.close(), ())

    async def _generate_rest(self, attempt: Attempt, stream: RunStream, generation: Generation) -> None:
        draft, visit, pace = attempt.draft, attempt.visit, self._pace(attempt)
        async with visit.inside(generation.most_tokens), aclosing(self._engine.generate(generation)) as steps:
            attempt.check()  # what came after its turn had come found nothing to abort
            with self._gauge.generating():
                pace.enter(len(generation.prompt_ids))
                async for step in steps:
                    judge(self.meter, attempt, generation, step)
                    if step.finish_reason in {None, FinishReason.ABORT}:
                        attempt.check()
                    pace.note(step)
                    stream.push(draft.add(step), step.token_ids)
                    if draft.is_stopped:
                        draft.finish_reason = FinishReason.STOP
                        break
        if draft.finish_reason is FinishReason.ABORT:
            raise HandedBack(attempt.request_id)  # by the engine itself, which is going down

    def _pace(self, attempt: Attempt) -> Pace:
        run, tally = attempt.run, self.meter.tallies[attempt.run.room_tier]
        return Pace(tally, self._gauge.prefill, run, attempt.claim, is_first=not attempt.draft.token_ids)

    async def _end(self, attempt: Attempt, stream: RunStream, text: str, outcome: Outcome) -> None:
        await stream.flush()
        if not await self._rows.insist(finish_run, attempt.run, attempt.claim.attempt, outcome, text, uuid7()):
            raise AttemptLost(attempt.request_id)
        self._note_end(attempt)
        await stream.end(endings.ended(attempt.run, text))
        await self._rows.act(self._remember, attempt)
        await self._rows.act(accounting.settle, attempt.run)
        self._follow_ups.do(background.follow_up, attempt.run)

    def _remember(self, attempt: Attempt) -> None:
        """What the chat's next turn will begin with."""
        if attempt.prompt and attempt.run.answer_id and attempt.run.chat.is_kept:
            answer = Answer(attempt.draft.text, attempt.draft.token_ids)
            hot_contexts.keep(attempt.run.chat_id, attempt.run.model, attempt.prompt, answer)
            # Behind it: one that is deleted from now on is forgotten by whoever deletes it.
            if CHAT.first(chat=attempt.run.chat_id) is None:
                hot_contexts.forget(attempt.run.chat_id)

    def _note_end(self, attempt: Attempt) -> None:
        self._log_end(attempt)
        self._announcements.do(announcements.ended, attempt.run)

    def _log_end(self, attempt: Attempt) -> None:
        run = attempt.run
        self.meter.tallies[run.room_tier].ended[run.status] += 1
        logger.info(
            "run.ended run=%s attempt=%d status=%s code=%s output_tokens=%d",
            *(run.pk, attempt.claim.attempt, run.status, run.error_code or "-", run.output_tokens),
        )

    def _stop(self, attempt: Attempt, verdict: Verdict) -> None:
        """Beside the caller, who may have others to stop: an engine lets go of a request at its next step."""
        attempt.stop(verdict)
        abort = asyncio.create_task(self._abort(attempt))
        self._aborts.add(abort)
        abort.add_done_callback(self._aborts.discard)

    async def _abort(self, attempt: Attempt) -> None:
        try:
            await self._engine.abort(attempt.request_id)
        except EngineDead:
            logger.warning("run.not_aborted run=%s attempt=%d", attempt.run.pk, attempt.claim.attempt)

    async def _give_back(self, attempt: Attempt, *, is_blameless: bool) -> None:
        """Let the next attempt begin at once: its message is about to go back to the queue."""
        logger.warning("run.handed_back run=%s attempt=%d", attempt.run.pk, attempt.claim.attempt)
        try:
            await self._leases.give_back(attempt.claim, is_blameless=is_blameless)
        except DatabaseAway as error:
            logger.warning("run.lease_left run=%s error=%s", attempt.run.pk, type(error).__name__)


@asynccontextmanager
async def attempts_on(workplace: Workplace, lease: timedelta) -> AsyncIterator[Attempts]:
    """The worker's attempts, with the tasks beside them that renew leases, release the next runs and tell pages."""
    rows = Rows(DATABASE_THREADS)
    leases, releases = Leases(lease), Releases(workplace.order)
    try:
        async with (
            leases.renewing(),
            releases.releasing(),
            aside("announcements") as telling,
            aside("follow-ups") as follow_ups,
        ):
            yield Attempts(workplace, rows, leases, releases, Beside(telling, follow_ups))
    finally:
        rows.close()


def take_run(run_id: UUID, worker: str, lease: timedelta, served: Served | None) -> tuple[Run, Claim, Prompt | None]:
    """Claim a run, with its prompt: the engine waits for both. Raises `RunTaken`.

    None where the prompt cannot be made now: the claim stands, and whoever needs the prompt is told why.
    """
    run, claim = claim_run(run_id, worker, lease, served)
    if run.kind != Run.Kind.REPLY:
        return run, claim, None
    try:
        return run, claim, prompt_of(run, claim)
    except (Message.DoesNotExist, TokensError, *DatabaseAway):
        return run, claim, None


def prompt_of(run: Run, claim: Claim) -> Prompt:
    """Of a claimed run. Raises `Message.DoesNotExist`, `TokensError`."""
    make = context.for_run if run.version_id == claim.version_before else context.for_run_of_another_version
    return make(run)


def claim_run(run_id: UUID, worker: str, lease: timedelta, served: Served | None = None) -> tuple[Run, Claim]:
    """Take a run, and read what its attempt needs; its model is as it is served here. Raises `RunTaken`."""
    claim = Run.objects.claim(run_id, worker, lease, version=served.version if served else None)
    run = Run.objects.claimed(claim)
    if served:
        run.version_id = served.version
        served.show(run.model)
    return run, claim


def continued(attempt: Attempt, prompt_ids: Sequence[int]) -> Generation | None:
    """What to ask of the engine: the prompt with what is written already; None when that has reached the cap."""
    written, run = attempt.draft.token_ids, attempt.run
    if len(written) >= run.max_output_tokens:
        return None
    ids, cap = [*prompt_ids, *written], run.max_output_tokens - len(written)
    return Generation(attempt.request_id, ids, cap, sampling_of(run))
