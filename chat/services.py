"""Acts that cross stores."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models.functions import Now
from kombu.exceptions import KombuError
from redis.exceptions import RedisError

from chat import content as rules
from chat import context, problems
from chat.models import Chat, Message, Role, Run, Status, User
from chat.standing import Standing
from inference.tokens import Tokenizer
from scheduler.dispatch import Dispatcher, broker_client
from scheduler.models import Model

logger = logging.getLogger(__name__)


class HistoryMoved(Exception):
    """An answer landed in the chat while its history was being tokenised."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A question and its prompt, counted but not yet stored."""

    user: User
    chat: Chat
    model: Model
    content: str
    content_tokens: int
    prompt: context.Prompt
    max_output_tokens: int


def ask(user: User, chat: Chat, content: str, model: Model, max_output_tokens: int | None = None) -> Run:
    """Store a question and queue its run; with the broker down the run waits in the database.

    `max_output_tokens` above what the tier, the model or the room left in its window allows is lowered to that.
    Raises `problems.Content*`, `PromptTooLong`, `ChatBusy`, `NotFound` where the chat is gone,
    `scheduler.errors.TooManyRuns`, `inference.tokens.TokensError`.
    """
    rules.check(content)
    # Asked again under the lock; asked here so that who is refused anyway costs no tokenising.
    Standing.of(user, chat).check(user.tier)
    while True:
        draft = _draft(user, chat, content, model, max_output_tokens)
        try:
            return _store(draft)
        except HistoryMoved:
            # Each turn of the loop needs a run that ended within the time of one tokenising.
            logger.info("ask.history_moved chat=%s", chat.pk)


def _draft(user: User, chat: Chat, content: str, model: Model, wanted_tokens: int | None) -> Draft:
    """Tokenise, which takes long: no transaction may be open."""
    prompt = context.for_question(chat, model, content)
    room = model.context_window - len(prompt.ids)
    if room < 1:
        raise problems.PromptTooLong(len(prompt.ids), model.context_window)
    caps = [room, user.tier.max_output_tokens, model.max_output_tokens, *([wanted_tokens] if wanted_tokens else [])]
    content_tokens = Tokenizer.load(model.source).count(content)
    return Draft(user, chat, model, content, content_tokens, prompt, max_output_tokens=min(caps))


def _store(draft: Draft) -> Run:
    """Raises `ChatBusy`, `TooManyRuns`, `NotFound`, `HistoryMoved`."""
    with transaction.atomic():
        draft.user.lock()
        standing = Standing.of(draft.user, draft.chat)
        standing.check(draft.user.tier)
        if standing.last_position != draft.prompt.position - 1:
            raise HistoryMoved
        run = _insert(draft)
        # Robust: the run is stored, and whatever fails here is no reason to tell the user otherwise.
        transaction.on_commit(lambda: _admit(run), robust=True)
    return run


def _insert(draft: Draft) -> Run:
    chat, user, model = draft.chat, draft.user, draft.model
    question = Message.objects.create(
        chat=chat,
        position=draft.prompt.position,
        role=Role.USER,
        content=draft.content,
        token_count=draft.content_tokens,
    )
    Chat.objects.filter(pk=chat.pk).update(updated_at=Now())
    return Run.objects.create(
        chat=chat,
        prompt=question,
        model=model,
        tier=user.tier,
        input_tokens=len(draft.prompt.ids),
        max_output_tokens=draft.max_output_tokens,
    )


def _admit(run: Run) -> None:
    try:
        sent = dispatcher().admit([run.pk], run.model_id, run.tier_id)
    except (RedisError, KombuError, OSError) as error:
        # The row stays queued, by which `readmit` finds it.
        logger.warning("dispatch.failed run=%s reason=%s", run.pk, type(error).__name__)
    else:
        _mark_released(sent)


def readmit() -> None:
    """Let every queued run into its room again, where the broker lost it or never got it; for a worker that starts.

    A run that waits there already keeps its place, and the claim makes a second message harmless.
    Raises `RedisError` or `KombuError` when the broker is away.
    """
    queued = Run.objects.filter(status=Status.QUEUED).order_by("model", "tier", "id")
    rows = queued.values_list("model", "tier", "pk")
    for (model, tier), waiting in groupby(rows, key=itemgetter(0, 1)):
        _mark_released(dispatcher().admit([run_id for _, _, run_id in waiting], model, tier))


def release(model: str, tier: str) -> list[UUID]:
    """Send the runs that are next, while the queue is shallow; call it when a worker has taken one or ended one.

    Raises `RedisError` or `KombuError` when the broker is away.
    """
    sent = dispatcher().release(model, tier)
    _mark_released(sent)
    return sent


def dispatcher() -> Dispatcher:
    """This process's dispatcher for the broker of the settings."""
    return _dispatcher(settings.BROKER_URL, settings.DISPATCH_LOOKAHEAD)


@lru_cache
def _dispatcher(broker_url: str, lookahead: int) -> Dispatcher:
    from chatsite.celery import app

    return Dispatcher(broker_client(broker_url), app, lookahead)


def _mark_released(run_ids: Collection[UUID]) -> None:
    if run_ids:
        Run.objects.filter(pk__in=run_ids, released_at=None).update(released_at=Now())
