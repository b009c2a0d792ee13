"""A chat as a file that its owner may keep: for people to read, or for programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self
from uuid import UUID

from django.utils.text import slugify
from rest_framework.utils.encoders import JSONEncoder

from chat.models import Chat, Message, Role, Run
from chat.turns import Turn, tail, turns

WHO = {Role.USER: "You", Role.ASSISTANT: "Palaver"}
JSON = JSONEncoder(ensure_ascii=False, indent=2)


@dataclass(frozen=True, slots=True)
class Form:
    """How a chat is written down, and as which type of file."""

    suffix: str
    media_type: str
    written: Callable[[Chat, Sequence[Turn]], str]

    @classmethod
    def of(cls, suffix: str) -> Self:
        """The form whose files end so. Raises `KeyError`."""
        return cls(suffix, *_FORMS[suffix])

    def text(self, chat: Chat) -> str:
        """The whole chat, but for an answer that is still being written; ask for it `with_opening`."""
        told = turns(list(chat.messages.standing().defer("token_ids", "html").order_by("position")), to_the_end=True)
        return self.written(chat, [*told[:-1], *(replace(last, note=tail(chat).note) for last in told[-1:])])

    def file_name(self, chat: Chat) -> str:
        """By what its owner's pages call it."""
        return f"{slugify(chat.label, allow_unicode=True) or 'chat'}.{self.suffix}"


def _markdown(chat: Chat, said: Sequence[Turn]) -> str:
    """Messages word for word, each under who said it."""
    parts = [f"# {chat.label}"]
    for turn in said:
        parts += [f"## {WHO[Role(turn.message.role)]}", turn.message.content]
        parts += [f"*{turn.note}*"] if turn.note else []
    return "\n\n".join(parts) + "\n"


def _json(chat: Chat, said: Sequence[Turn]) -> str:
    """The fields that the API has of a chat and its messages, and the model of each answer."""
    runs = Run.objects.filter(answer__in=[turn.message.pk for turn in said])
    models: dict[UUID | None, str] = dict(runs.values_list("answer", "model"))
    told = {
        "id": chat.pk,
        "title": chat.title,
        "created_at": chat.created_at,
        "updated_at": chat.updated_at,
        "messages": [_message(turn.message, models) for turn in said],
    }
    return JSON.encode(told) + "\n"


def _message(message: Message, models: Mapping[UUID | None, str]) -> dict[str, Any]:
    return {
        "id": message.pk,
        "role": message.role,
        "content": message.content,
        "model": models.get(message.pk),
        "created_at": message.created_at,
    }


_FORMS = {
    "md": ("text/markdown; charset=utf-8", _markdown),
    "json": ("application/json", _json),
}
