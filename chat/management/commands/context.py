"""manage.py context CHAT: what the chat's next prompt would be made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser

from chat import inspection
from chat.inspection import Inspection, NoModel, Part
from chat.models import Chat
from inference.tokens import TokensError
from scheduler.models import Model

TEMPLATE_CHANGES = "otherwise when others follow: each turn is computed from there on"


class Command(BaseCommand):
    """Counts and places; no word of the chat unless asked for."""

    help = "Shows by part, in tokens, what a chat's next prompt would be made of, and what is in a cache of it."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """Which chat, and what would be asked of whom."""
        parser.add_argument("chat", metavar="CHAT", help="the chat's id")
        parser.add_argument("--model", metavar="SLUG", help="of which model; else the one that answered last")
        parser.add_argument("--question", metavar="TEXT", default="Hi", help="what would be asked (%(default)s)")
        parser.add_argument("--text", action="store_true", help="show what was said, too: it is private")

    def handle(self, *_: Any, chat: str, model: str | None, question: str, text: bool, **__: Any) -> None:
        """Raises `CommandError` for an unknown chat or model, and where the model's files cannot be used."""
        asked_in = chat_of(chat)
        try:
            found = inspection.inspect(asked_in, model_of(asked_in, model), question)
        except TokensError as error:
            raise CommandError(" ".join(str(error).split())) from error
        for line in table(found.parts, with_text=text):
            self.stdout.write(line)
        for line in figures(found):
            self.stdout.write(line)


def chat_of(named: str) -> Chat:
    """Raises `CommandError`."""
    try:
        return Chat.objects.select_related("owner__tier").get(pk=UUID(named))
    except ValueError as error:
        raise CommandError(f"{named!r} is no chat's id.") from error
    except Chat.DoesNotExist as error:
        raise CommandError(f"There is no chat {named}.") from error


def model_of(chat: Chat, named: str | None) -> Model:
    """Raises `CommandError`."""
    try:
        return Model.objects.get(pk=named) if named is not None else inspection.model_of(chat)
    except Model.DoesNotExist as error:
        raise CommandError(f"There is no model {named!r}.") from error
    except NoModel as error:
        raise CommandError("No model is the default one: name one with --model.") from error


def table(parts: Sequence[Part], *, with_text: bool) -> list[str]:
    """A line for each part, with its text below it where that is wanted."""
    lines = []
    for part in parts:
        lines.append(f"{part.name:<24}{part.tokens:>7}  {part.note}".rstrip())
        lines += [f"    | {line}" for line in part.text.splitlines() if with_text]
    return lines


def figures(found: Inspection) -> list[str]:
    """What is known of the whole."""
    prompt, window = found.prompt, found.model.context_window
    room = f"the answer may have {found.answer_tokens}, {found.left} are left" if found.left > 0 else "it is refused"
    warm = f"{prompt.warm_worker}, {prompt.warm_tokens} tokens" if prompt.warm_worker else "none"
    takes = "as they are: the next turn begins with this one" if found.takes_turns_as_they_are else TEMPLATE_CHANGES
    return [
        f"{'total':<24}{len(prompt.ids):>7}  of a window of {window}; {room}",
        f"model           {found.model.pk}",
        f"hot context     {found.hot}",
        f"warm worker     {warm}",
        f"chat template   takes turns {takes}",
        f"next fold       {found.fold}",
    ]
