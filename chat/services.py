"""What users do in their chats: acts that cross stores."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from uuid import UUID

from django.db import transaction

from chat import (
    accounting,
    announcements,
    auto,
    cancelling,
    context,
    continuing,
    hot_contexts,
    last_words,
    outcomes,
    problems,
)
from chat import content as rules
from chat.auto import Asking, LayOut
from chat.draft import Counts
from chat.emitted import Emitted
from chat.models import Chat, IdempotencyKey, Mark, Message, Role, Run, Status, User
from chat.past import Past
from chat.standing import Standing
from chat.submission import HistoryMoved, Submission, check_latest, output_cap
from chat.wishes import Wishes
from scheduler.auto import Pick
from scheduler.models import Model, RoutingRule

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Question:
    """What a user asks: of which model, and how long the answer may be at most.

    Of Auto where there are `rules`, which go before the model: see `scheduler.auto.Pick`.
    """

    content: str
    model: Model
    max_output_tokens: int | None = None
    rules: Sequence[RoutingRule] = ()


def open_chat(user: User, key: IdempotencyKey | None = None, origin: Chat | None = None) -> Chat:
    """Open a chat, which may go on from another of the user's.

    Raises `KeyLost`; with an `origin` also `NotFound` where that is gone, `scheduler.errors.ModelUnknown`,
    `inference.tokens.TokensError`.
    """
    carried = continuing.carried(user, origin) if origin else ""
    with transaction.atomic() if key or origin else nullcontext():
        chat = continuing.begin(user, origin, carried) if origin else continuing.new_chat(user)
        if key:
            key.settle(chat.pk)
    announcements.changed(chat)
    return chat


def ask(user: User, chat: Chat, question: Question, key: IdempotencyKey | None = None) -> Run:
    """Store a question and queue its run; with the broker down the run waits in the database.

    `max_output_tokens` above what the user's limits, the model, the room left in its window or a full budget allow is
    lowered to that. Raises `problems.Content*`, `PromptTooLong`, `ChatBusy`, `ChatFull`, `NotFound` where the chat is
    gone, `KeyLost`, `scheduler.errors.PromptExceedsBudget`, `TooManyRuns`, `QueueFull`, `BudgetExhausted`,
    `inference.tokens.TokensError`.
    """
    rules.check(question.content)
    asking = Asking(user, chat, Pick(question.model, question.rules), question.max_output_tokens)
    standing = asking.look()
    while True:
        asked = _submission(asking, standing, question.content, key)
        try:
            return asked.store()
        except HistoryMoved:
            # Each turn of the loop needs a run that ended within the time of one tokenising.
            logger.info("ask.history_moved chat=%s", chat.pk)


def retry(user: User, run: Run, key: IdempotencyKey | None = None) -> Run:
    """Queue another run for the question of `run`, the chat's latest; what it writes takes the present answer's place.

    Raises `NotFound` where the chat is not kept, `NotLatest`, `scheduler.errors.ModelUnknown` where the user may no
    longer use the model, and as `ask` does, but not `ChatFull`: it is no new question.
    """
    chat, question = run.chat, run.prompt
    if not chat.is_kept:  # nor is what was asked
        raise problems.NotFound
    asking = Asking(user, chat, auto.again(user, run), run.max_output_tokens, is_retry=True)
    standing = asking.look()
    check_latest(question, standing)
    try:
        chosen = asking.choose(standing, _laying_out_again(asking, run))
    except Message.DoesNotExist as gone:
        raise problems.NotFound from gone
    model, prompt = chosen.model, chosen.prompt
    cap = output_cap(user, model, prompt, asking.max_output_tokens)
    wishes, why = Wishes.of(run), chosen.reason
    return Submission(
        user, chat, model, question, prompt, cap, is_retry=True, key=key, wishes=wishes, reason=why
    ).store()


def delete(user: User, chat: Chat) -> None:
    """Delete a chat with all that is in it; a run that is live stops. Raises `NotFound` when it is gone already."""
    with transaction.atomic():
        user.lock()
        # As whoever finishes a run does: first the chat, then the run. Nothing is claimed, ended or asked from here on.
        if not Chat.objects.select_for_update().filter(pk=chat.pk).exists():
            raise problems.NotFound
        live = list(chat.runs.live().select_for_update(of=("self",)).select_related("model"))
        streamed = list(chat.runs.with_stream().values_list("pk", flat=True))
        _charge([run for run in live if run.kind == Run.Kind.REPLY], streamed)
        chat_id = chat.pk  # which the object forgets
        chat.delete()
        transaction.on_commit(lambda: announcements.deleted(chat_id, user.pk), robust=True)
        transaction.on_commit(lambda: cancelling.dismiss(live), robust=True)
        transaction.on_commit(lambda: last_words.forget(streamed), robust=True)
        transaction.on_commit(lambda: hot_contexts.forget(chat_id), robust=True)
        # Those that had ended are settled, but for one whose worker has just died: the reaper does that.
        transaction.on_commit(lambda: accounting.settle_deleted(user.pk, [run.pk for run in live]), robust=True)


def delete_user(user: User) -> None:
    """Delete a user with all that is theirs; what is live in their chats stops."""
    with transaction.atomic():
        user.lock()
        theirs = Run.objects.filter(chat__owner=user)
        for chat in user.chats.filter(pk__in=(theirs.live() | theirs.with_stream()).values("chat")):
            delete(user, chat)
        user_id = user.pk  # which the object forgets
        user.delete()
        Mark.objects.filter(pk=user_id).delete()


def _charge(live: Iterable[Run], streamed: Iterable[UUID]) -> None:
    """End the runs of a chat that is about to go, as far as they were put by, and keep what they are charged."""
    started = [run for run in live if run.status == Status.STREAMING]
    for run in started:
        put_by = Emitted.put_by(run.checkpoints.all(), run.resumptions)
        outcome = outcomes.cancelled(run, Counts(len(put_by.token_ids)))
        run.finish(run.attempt, outcome, None)
        run.output_tokens, run.charged_tokens = outcome.output_tokens, outcome.charged_tokens  # for its readers
    accounting.enter([run.pk for run in started])
    accounting.keep_charges([*(run.pk for run in live), *streamed])


def _submission(asking: Asking, standing: Standing, content: str, key: IdempotencyKey | None) -> Submission:
    """Tokenise, which takes long: no transaction may be open."""
    user, chat = asking.user, asking.chat
    chosen = asking.choose(standing, _laying_out(asking, content))
    model, prompt = chosen.model, chosen.prompt
    cap = output_cap(user, model, prompt, asking.max_output_tokens)
    tokens = model.tokenizer.count(content)
    question = Message(chat=chat, position=prompt.position, role=Role.USER, content=content, token_count=tokens)
    wishes = Wishes(system=prompt.system)
    return Submission(user, chat, model, question, prompt, cap, key=key, wishes=wishes, reason=chosen.reason)


def _laying_out(asking: Asking, content: str) -> LayOut:
    """For Auto what was said is read once, whichever models are looked at."""
    chat = asking.chat
    if asking.pick.is_auto:
        past = Past.of(chat.pk, "").asked(content)
        return lambda model: context.laid_out(past.as_for(model.pk), model, asking.answer_tokens(model))
    return lambda model: context.for_question(chat, model, content, asking.answer_tokens(model))


def _laying_out_again(asking: Asking, run: Run) -> LayOut:
    """Raises `Message.DoesNotExist` when the question was deleted."""
    if asking.pick.is_auto:
        past = context.past_of(run, "")
        return lambda model: context.laid_out(past.as_for(model.pk), model, asking.answer_tokens(model))
    return lambda model: context.for_another(run, model, asking.answer_tokens(model))
