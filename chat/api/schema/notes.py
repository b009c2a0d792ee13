"""What serializers cannot say of their fields: bounds, meanings, and the shapes of what they compute."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from django.conf import settings
from drf_spectacular.extensions import OpenApiSerializerExtension, OpenApiSerializerFieldExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import Direction

from chat.api.keys import KeyShape, NewKeyShape
from chat.api.schema.shapes import Schema, Shape
from chat.api.serializers import (
    ChatDetailShape,
    ChatShape,
    MessageShape,
    NewChatShape,
    QuestionShape,
    RenamingShape,
    RunShape,
)
from chat.models import Run, Status


def line(most: int) -> Schema:
    """One line of text that has so many characters at most, without the blanks around it."""
    return {"type": "string", "minLength": 1, "pattern": rf"^\s*\S(.{{0,{most - 2}}}\S)?\s*$"}


UUID_OR_NULL: Schema = {"type": ["string", "null"], "format": "uuid"}
# What a serializer cannot say of its fields.
NOTES: Mapping[type[Shape], Mapping[str, Schema]] = {
    NewChatShape: {"continues": {"description": "A chat of the user's to go on from."}},
    QuestionShape: {
        "content": {
            "minLength": 1,
            "maxLength": settings.MAX_CONTENT_BYTES,
            "description": f"At most {settings.MAX_CONTENT_BYTES} bytes in UTF-8. No NUL, and not only blanks.",
        },
        "model": {
            "description": "A slug of `GET /api/models`, `auto` too if it is there; else the default one answers."
        },
        "max_output_tokens": {"description": "Lowered to what limits, model, window and budget allow."},
    },
    RenamingShape: {"title": {"description": "One line of text, 1 to 200 characters without the blanks around it."}},
    NewKeyShape: {
        "name": {"description": "One line of text, 1 to 64 characters without the blanks around it."},
        "scopes": {"minItems": 1, "description": "What it is good for; none that the credential lacks."},
        "expires_at": {"description": "In the future; without it the key opens for good."},
    },
    ChatShape: {
        "title": {"description": "Empty until somebody gives it one, or the model does."},
        "live_run_id": {**UUID_OR_NULL, "description": "The run that is answering in it now."},
        "continues": {**UUID_OR_NULL, "description": "The chat that it goes on from, until that is deleted."},
    },
    ChatDetailShape: {"usage": {"$ref": "#/components/schemas/Counts"}},
    MessageShape: {
        "run": {
            "type": ["object", "null"],
            "properties": {
                "id": {"type": "string", "format": "uuid"},
                "status": {"type": "string", "enum": list(Status.values)},
            },
            "required": ["id", "status"],
            "description": "The run that made it, or the latest that answers it.",
        },
    },
    RunShape: {
        "answer_id": {**UUID_OR_NULL, "description": "The message that it produced."},
        "chat_id": {"type": "string", "format": "uuid"},
        "prompt_id": {"type": "string", "format": "uuid", "description": "The question that it answers."},
        "kind": {
            "enum": [Run.Kind.REPLY.value],
            "type": "string",
            "description": "What runs beside replies is not shown.",
        },
        "auto": {
            "type": ["object", "null"],
            "properties": {
                "rule": {"type": ["integer", "null"], "description": "Its position; null where none held."},
                "conditions": {"type": "string", "description": "Of that rule, as it was then."},
                "otherwise": {"type": "string", "description": "The default model, which answers where no rule holds."},
                "prompt_tokens": {"type": ["integer", "null"], "description": "As the default model counts them."},
                "load_percent": {
                    "type": ["integer", "null"],
                    "description": "Of the default model: 100 is full, 200 that as many wait.",
                },
            },
            "required": ["rule", "conditions", "otherwise", "prompt_tokens", "load_percent"],
            "description": "Why Auto chose its model; null where that was picked. Numbers no rule asked for are null.",
        },
        "attempt": {"description": "How many workers have taken it so far."},
        "epoch": {"description": "How many summaries stood before the prompt's messages; 0 is none."},
        "left_out": {"description": "How many of the chat's messages neither the prompt nor its summary had."},
        "finish_reason": {"description": "`stop`, `length`, `cancelled`, `error`; empty until it ends."},
        "error": {
            "type": ["object", "null"],
            "properties": {"code": {"type": "string"}, "detail": {"type": "string"}},
            "required": ["code", "detail"],
            "description": "Why it failed.",
        },
        "stream": {"description": "The path to follow it at."},
    },
    KeyShape: {
        "scopes": {"uniqueItems": True},
        "shown": {"description": "The secret's first characters, to tell keys apart."},
    },
}


class NotedShape(OpenApiSerializerExtension):  # type: ignore[no-untyped-call]  # its metaclass
    """Every serializer: in answers each field is there, and what the notes say replaces what was derived."""

    target_class = "rest_framework.serializers.Serializer"
    match_subclasses = True

    def map_serializer(self, auto_schema: AutoSchema, direction: Direction) -> Schema:
        """As drf-spectacular derives it, completed."""
        derive: Callable[..., Schema] = auto_schema._map_serializer
        schema = derive(self.target, direction, bypass_extensions=True)
        shape = type(self.target)
        notes = {name: said for of in reversed(shape.__mro__) for name, said in NOTES.get(of, {}).items()}
        # What docstrings say behind the first sentence is for us.
        schema["description"] = schema["description"].partition(". ")[0].removesuffix(".") + "."
        for name, derived in schema["properties"].items():
            schema["properties"][name] = _noted(_bare(derived), notes.get(name, {}))
        if direction == "response":
            schema["required"] = list(schema["properties"])
        return schema


def _bare(derived: Schema) -> Schema:
    """Without what is for drf-spectacular's own use, and what an answer's shape says as a whole."""
    kept = {key: value for key, value in derived.items() if key not in {"readOnly", "x-spec-enum-id"}}
    return kept | ({"items": _bare(kept["items"])} if "items" in kept else {})


def _noted(derived: Schema, said: Schema) -> Schema:
    """A reference or a type of its own replaces what was derived."""
    return said if "$ref" in said else {**({} if "type" in said else derived), **said}


class AnyText(OpenApiSerializerFieldExtension):  # type: ignore[no-untyped-call]
    """Text as it is."""

    target_class = "chat.api.serializers.TextField"

    def map_serializer_field(self, auto_schema: AutoSchema, direction: Direction) -> Schema:  # noqa: ARG002
        """Any string."""
        return {"type": "string"}


class OneLine(OpenApiSerializerFieldExtension):  # type: ignore[no-untyped-call]
    """A title or a name."""

    target_class = "chat.api.serializers.TitleField"
    match_subclasses = True

    def map_serializer_field(self, auto_schema: AutoSchema, direction: Direction) -> Schema:  # noqa: ARG002
        """Bounded without the blanks around it."""
        return line(self.target.MAX_LENGTH)


class Positive(OpenApiSerializerFieldExtension):  # type: ignore[no-untyped-call]
    """A positive whole number."""

    target_class = "chat.api.serializers.PositiveField"

    def map_serializer_field(self, auto_schema: AutoSchema, direction: Direction) -> Schema:  # noqa: ARG002
        """From 1 on."""
        return {"type": "integer", "minimum": 1}


class Id(OpenApiSerializerFieldExtension):  # type: ignore[no-untyped-call]
    """The id of something."""

    target_class = "chat.api.serializers.IdField"

    def map_serializer_field(self, auto_schema: AutoSchema, direction: Direction) -> Schema:  # noqa: ARG002
        """A UUID."""
        return {"type": "string", "format": "uuid"}
