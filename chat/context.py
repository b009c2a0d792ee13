"""Which tokens a prompt is made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.db.models import QuerySet

from chat.models import Chat, Message, Role, Run
from inference.tokens import Tokenizer, Turn
from scheduler.models import Model


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt's token ids, and the position of its question in the chat."""

    ids: Sequence[int]
    position: int


def for_question(chat: Chat, model: Model, content: str) -> Prompt:
    """The prompt that `content` would make as the chat's next message. Raises `TokensError`."""
    history = _turns(chat.messages.standing())
    question = (_next_position(history), Role.USER, content)
    return _prompt(model, [*history, question])


def for_run(run: Run) -> Prompt:
    """The prompt of a stored run: the same ids that were counted when it was asked. Raises as `for_stored`."""
    return for_stored(run.prompt, run.model)


def for_stored(question: Message, model: Model) -> Prompt:
    """The prompt that ends with a stored question. Raises `Message.DoesNotExist` when it was deleted, `TokensError`."""
    rows = _turns(Message.objects.standing().filter(chat=question.chat_id, position__lte=question.position))
    if not rows:
        raise Message.DoesNotExist
    return _prompt(model, rows)


def build(model: Model, turns: Iterable[Turn]) -> list[int]:
    """Token ids of the model's system prompt and `turns`, ready for an answer. Raises `TokensError`."""
    system = [Turn("system", model.system_prompt)] if model.system_prompt else []
    return Tokenizer.load(model.source).encode_chat([*system, *_alternating(turns)])


def _turns(messages: QuerySet[Message]) -> list[tuple[int, str, str]]:
    return list(messages.order_by("position").values_list("position", "role", "content"))


def _next_position(history: Sequence[tuple[int, str, str]]) -> int:
    return history[-1][0] + 1 if history else 1


def _prompt(model: Model, rows: Sequence[tuple[int, str, str]]) -> Prompt:
    return Prompt(build(model, [Turn(role, content) for _, role, content in rows]), position=rows[-1][0])


def _alternating(turns: Iterable[Turn]) -> list[Turn]:
    """One turn for neighbours of the same role: a question whose run left no answer is asked together with the next.

    Dropping it would hide from the model what the reader sees, and strict templates refuse two user turns in a row.
    """
    merged: list[Turn] = []
    for turn in turns:
        if merged and merged[-1].role == turn.role:
            turn = Turn(turn.role, f"{merged.pop().content}\n\n{turn.content}")  # noqa: PLW2901
        merged.append(turn)
    return merged
