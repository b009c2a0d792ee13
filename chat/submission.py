"""A run on its way into the rows, through every gate that may refuse it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from django.db import transaction
from uuid6 import uuid7

from chat import accounting, announcements, problems, queueing
from chat.accounting import Take
from chat.context import Prompt
from chat.models import Chat, IdempotencyKey, Message, Run, User
from chat.standing import Standing
from chat.wishes import Wishes
from chatsite.database.prepared import insert
from scheduler import admission
from scheduler.admission import CROWD
from scheduler.auto import Reason
from scheduler.errors import QueueFull
from scheduler.models import Model


class HistoryMoved(Exception):
    """An answer landed in the chat while its history was being tokenised."""


@dataclass(frozen=True, slots=True)
class Submission:
    """A run of `question` that is counted but not yet stored, nor is its question unless it is asked again.

    Its chat may be new as well, and `earlier` messages come with the question.
    """

    user: User
    chat: Chat
    model: Model
    question: Message
    prompt: Prompt
    max_output_tokens: int
    is_retry: bool = False
    key: IdempotencyKey | None = None
    earlier: Sequence[Message] = ()
    wishes: Wishes = field(default_factory=Wishes)
    reason: Reason | None = None

    def store(self) -> Run:
        """Reserve its cost and queue it, all or nothing.

        Raises `ChatBusy`, `ChatFull`, `TooManyRuns`, `QueueFull`, `BudgetExhausted`, `NotFound`, `HistoryMoved`,
        `NotLatest`, `KeyLost`.
        """
        run = self._run()
        with accounting.holding(self.user, run.pk, self.user.limits) as take, transaction.atomic():
            self.user.lock()
            standing = Standing.of(self.user, self.chat, self.model)
            standing.check(self.user, is_retry=self.is_retry)
            _check_queue(self.user, self.model, standing)
            self._check_place_in_chat(standing)
            self._insert(run, take, standing)
            # Robust: the run is stored, and whatever fails here is no reason to tell the user otherwise.
            # Said, then done: the other way round pages might hear of its start first.
            transaction.on_commit(lambda: announcements.queued(run), robust=True)
            transaction.on_commit(lambda: queueing.admit(run), robust=True)
        return run

    def _run(self) -> Run:
        return Run(
            pk=uuid7(),
            chat=self.chat,
            prompt=self.question,
            model=self.model,
            version_id=self.model.version_id,
            tier=self.user.tier,
            input_tokens=len(self.prompt.ids),
            max_output_tokens=self.max_output_tokens,
            warm_worker=self.prompt.warm_worker,
            warm_tokens=self.prompt.warm_tokens,
            epoch=self.prompt.layout.epoch,
            first_position=self.prompt.layout.first_position,
            left_out=self.prompt.layout.left_out,
            wishes=self.wishes.stored(),
            auto=self.reason.stored() if self.reason else None,
        )

    def _check_place_in_chat(self, standing: Standing) -> None:
        if self.is_retry:
            check_latest(self.question, standing)
        elif standing.last_position != self.question.position - 1 - len(self.earlier):
            raise HistoryMoved

    def _insert(self, run: Run, take: Take, standing: Standing) -> None:
        # What is reserved within the transaction has a row soon or never: the database ends those that are idle.
        take(run.cost)
        is_new = self.chat._state.adding
        if not is_new:
            self.chat.note_activity()
        if self.key:
            self.key.settle(run.pk)
        if standing.waiting.places(self.model, self.user.tier) <= CROWD:
            # Last before the rows: others who want the same place wait for our commit.
            Run.objects.hold_queue(self.model)
            _check_queue(self.user, self.model, Standing.of(self.user, self.chat, self.model))
        insert(*([self.chat] if is_new else []), *self.earlier, *([] if self.is_retry else [self.question]), run)


def output_cap(
    user: User, model: Model, prompt: Prompt, wanted_tokens: int | None, what: str = "This message alone makes"
) -> int:
    """How long the answer may be. Raises `PromptTooLong`, which tells of `what`, and `PromptExceedsBudget`."""
    if len(prompt.ids) >= model.context_window:
        raise problems.PromptTooLong(len(prompt.ids), model.context_window, what)
    return admission.output_cap(model, user.limits, len(prompt.ids), wanted_tokens)


def check_standing(user: User, model: Model, standing: Standing, *, is_retry: bool = False) -> None:
    """Whether asking makes sense, before it costs anything. Raises as `Standing.check`, and `QueueFull`."""
    standing.check(user, is_retry=is_retry)
    _check_queue(user, model, standing)
    # Told now, and not when its deadline has passed.
    if late_s := queueing.lateness_s(standing.waiting, model, user.tier):
        raise QueueFull(min(late_s, user.tier.queue_deadline_s))


def check_latest(question: Message, standing: Standing) -> None:
    """Raises `NotLatest`."""
    if standing.last_question != question.position:
        raise problems.NotLatest


def _check_queue(user: User, model: Model, standing: Standing) -> None:
    if standing.waiting.places(model, user.tier) < 1:
        raise QueueFull(queueing.retry_after_s(standing.waiting, model, user.tier))
