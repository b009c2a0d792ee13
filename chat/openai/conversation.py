"""The messages of a request as a prompt needs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from chat.models import Role
from chat.problems import FieldInvalid
from chat.wishes import joined

# What begins the prompt, wherever it stands in the request: not every chat template takes it elsewhere.
SYSTEM = frozenset({"system", "developer"})
ROLES: Mapping[str, Role] = {"user": Role.USER, "assistant": Role.ASSISTANT}
# What a message may have beside them, which asks for nothing that we do not do.
UNSUPPORTED = ("tool_calls", "function_call", "audio")
TEXT_PARTS = frozenset({"text", "input_text", "output_text"})


def read(messages: Any, name: str) -> tuple[str | None, Sequence[tuple[Role, str]]]:
    """The system's text, if there is any, and what was said; `name` is the field's. Raises `FieldInvalid`."""
    if not isinstance(messages, list) or not messages:
        raise FieldInvalid(f"{name}_invalid", "This must be a list of messages, with one at least.", name)
    system: list[str] = []
    said: list[tuple[Role, str]] = []
    for number, message in enumerate(messages):
        role, text = _message(message, f"{name}[{number}]")
        if role in SYSTEM:
            system.append(text)
        else:
            said.append((ROLES[role], text))
    if not said:
        raise FieldInvalid(f"{name}_invalid", "There must be a message of the user or the assistant.", name)
    return joined(*system), said


def _message(message: Any, name: str) -> tuple[str, str]:
    if not isinstance(message, dict):
        raise FieldInvalid("message_invalid", "A message must be an object with `role` and `content`.", name)
    role = message.get("role")
    if not isinstance(role, str) or role not in {*SYSTEM, *ROLES}:
        detail = "This must be one of system, developer, user, assistant. Messages of tools are not supported here."
        raise FieldInvalid("role_invalid", detail, f"{name}.role")
    if message.get("type", "message") != "message":
        raise FieldInvalid("item_unsupported", "Only items of type `message` are supported here.", f"{name}.type")
    for key in UNSUPPORTED:
        if message.get(key):
            raise FieldInvalid(f"{key}_unsupported", f"`{key}` is not supported here.", f"{name}.{key}")
    return role, _text(message.get("content"), f"{name}.content")


def _text(content: Any, name: str) -> str:
    """A string, or text parts, which follow one another as they are."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not content:
        raise FieldInvalid("content_invalid", "This must be a string, or a list of text parts.", name)
    return "".join(_part(part, f"{name}[{number}]") for number, part in enumerate(content))


def _part(part: Any, name: str) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(kind, str) or kind not in TEXT_PARTS:
        raise FieldInvalid("part_unsupported", "Only parts of type `text` are supported here.", f"{name}.type")
    if not isinstance(part.get("text"), str):
        raise FieldInvalid("part_invalid", "This must be a string.", f"{name}.text")
    return str(part["text"])
