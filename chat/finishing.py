"""The end of a run: its message, its counts, its place in the ledger and its status, all or nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import transaction

from chat import accounting
from chat.models import Message, Outcome, Role, Run, Status
from chatsite.database.prepared import insert, planned
from inference.tokens import TokensError

REPLACE = """
    UPDATE chat_message SET replaced_at = statement_timestamp()
     WHERE chat_id = %(chat_id)s AND position = %(position)s AND replaced_at IS NULL
"""


@dataclass(frozen=True, slots=True)
class Tokens:
    """How many a text has, and those that it came in, where prompts may have it so."""

    count: int
    ids: list[int] | None = None


def finish_run(run: Run, attempt: int, outcome: Outcome, text: str, answer_id: UUID) -> bool:
    """End a run with its message, all or nothing; False when another attempt has it, or it was deleted.

    Safe to repeat with the same `answer_id`. Brings `run` in step with its row.
    """
    message_id = answer_id if text or outcome.status is Status.DONE else None
    # Before the transaction: the first load of a tokenizer takes long, and the chat is locked in there.
    tokens = _tokens(run, text, outcome) if message_id else Tokens(0)
    with transaction.atomic():
        # The chat first, as whoever asks in it does: the other way round the two could wait for each other.
        run.chat.note_activity()
        ours = run.finish(attempt, outcome, message_id)
        if not ours:
            transaction.set_rollback(True)
        else:
            if message_id is not None:
                _store_answer(run, message_id, text, tokens)
            accounting.enter([run.pk])
    if not (ours or has_ended_so(run, attempt, outcome, message_id)):
        return False
    mirror(run, outcome, message_id)
    return True


def _store_answer(run: Run, message_id: UUID, text: str, tokens: Tokens) -> None:
    """The answer takes its place behind the question, and that of the answer which an earlier run left there."""
    place: dict[str, Any] = {"chat_id": run.chat_id, "position": run.prompt.position + 1}
    with planned() as cursor:
        cursor.execute(REPLACE, place)
    counted = {"token_count": tokens.count, "token_ids": tokens.ids}
    insert(Message(**place, id=message_id, role=Role.ASSISTANT, content=text, **counted))


def _tokens(run: Run, text: str, outcome: Outcome) -> Tokens:
    try:
        tokenizer = run.model.tokenizer
        ids = list(outcome.token_ids) if tokenizer.stands_for(outcome.token_ids, text) else None
        return Tokens(tokenizer.count(text), ids)
    except TokensError:
        # The model's files were moved, or are not on this machine: a run must end all the same.
        return Tokens(outcome.output_tokens)


def has_ended_so(run: Run, attempt: int, outcome: Outcome, message_id: UUID | None) -> bool:
    """An earlier call did it, and its reply was lost."""
    return Run.objects.filter(pk=run.pk, attempt=attempt, status=outcome.status, answer=message_id).exists()


def mirror(run: Run, outcome: Outcome, message_id: UUID | None) -> None:
    """Bring a run in step with its row, which has just been ended so."""
    run.answer_id = message_id
    run.status = outcome.status
    run.finish_reason = outcome.finish_reason
    run.input_tokens = outcome.input_tokens
    run.cached_tokens = outcome.cached_tokens
    run.output_tokens = outcome.output_tokens
    run.charged_tokens = outcome.charged_tokens
    run.error_code = outcome.error_code
    run.error_detail = outcome.error_detail
