"""Shapes of answers that views put together by hand, and what is to be said of fields, wherever they stand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django.conf import settings
from drf_spectacular.extensions import OpenApiSerializerExtension, OpenApiSerializerFieldExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import Direction
from rest_framework import serializers

from chat.api.keys import KeyShape, NewKeyShape
from chat.api.serializers import ChatDetailShape, ChatShape, MessageShape, QuestionShape, RenamingShape, RunShape
from chat.models import Run, Status

Shape = serializers.Serializer[Any]
Schema = dict[str, Any]


class CountsShape(Shape):
    """Tokens of runs; the cached ones are among those of the input."""

    runs = serializers.IntegerField(min_value=0)
    input_tokens = serializers.IntegerField(min_value=0)
    cached_tokens = serializers.IntegerField(min_value=0)
    output_tokens = serializers.IntegerField(min_value=0)
    charged_tokens = serializers.IntegerField(min_value=0)


class ModelCountsShape(CountsShape):
    """Tokens of one model's runs."""

    model = serializers.CharField()


class BudgetShape(Shape):
    """A bucket of tokens that fills at a steady rate."""

    tokens = serializers.IntegerField(min_value=0, help_text="What a full one has.")
    left_tokens = serializers.IntegerField(min_value=0)
    refill_tokens_per_hour = serializers.IntegerField(min_value=0)
    full_in_s = serializers.FloatField(min_value=0)
    full_at = serializers.DateTimeField()


class TodayShape(Shape):
    """The UTC day of the runs' ends, with the runs that a worker took."""

    day = serializers.DateField()
    models = ModelCountsShape(many=True)
    total = CountsShape()


class UsageShape(Shape):
    """The user's tier and limits, and what of it is taken."""

    tier = serializers.CharField()
    tier_name = serializers.CharField()
    concurrency = serializers.IntegerField(min_value=0, help_text="How many runs may be live at once.")
    max_output_tokens = serializers.IntegerField(min_value=1, help_text="Of one answer.")
    own_limits_until = serializers.DateTimeField(
        allow_null=True, help_text="When limits that an operator gave the user end; null where they are the tier's."
    )
    budget = BudgetShape()
    running = serializers.IntegerField(min_value=0)
    queued = serializers.IntegerField(min_value=0)
    today = TodayShape()


class ModelShape(Shape):
    """A model that may be picked."""

    slug = serializers.CharField(help_text="What a question names it by.")
    name = serializers.CharField()
    context_window = serializers.IntegerField(min_value=1, help_text="Tokens of a prompt and its answer together.")
    max_output_tokens = serializers.IntegerField(min_value=1, help_text="The longest answer that the user may have.")
    is_default = serializers.BooleanField()


class QueuedShape(Shape):
    """A run that was taken in."""

    run_id = serializers.UUIDField()
    message_id = serializers.UUIDField(help_text="The question.")
    stream = serializers.CharField(help_text="The path to follow the answer at.")


class NewKeyWithSecretShape(KeyShape):
    """A new key. Its secret is told this once."""

    secret = serializers.CharField()

    class Meta(KeyShape.Meta):
        fields = (*KeyShape.Meta.fields, "secret")  # type: ignore[assignment]


class ProblemShape(Shape):
    """What is answered in place of what was asked. Some codes come with more data than this."""

    type = serializers.CharField(help_text="Always `about:blank`.")
    title = serializers.CharField()
    status = serializers.IntegerField(min_value=400, max_value=599)
    code = serializers.CharField(help_text="Stable: to be told apart by programs.")
    detail = serializers.CharField(help_text="For people: what is wrong, and what to do.")


class ChatPageShape(Shape):
    """A page of chats."""

    results = ChatShape(many=True)
    next = serializers.CharField(allow_null=True, help_text="The path of the page behind this one.")


class MessagePageShape(Shape):
    """A page of messages, in reading order."""

    results = MessageShape(many=True)
    next = serializers.CharField(allow_null=True, help_text="The path of the page before this one.")


class KeyListShape(Shape):
    """All keys; there is never a next page."""

    results = KeyShape(many=True)
    next = serializers.CharField(allow_null=True, help_text="Always null.")


class ModelListShape(Shape):
    """All models; there is never a next page."""

    results = ModelShape(many=True)
    next = serializers.CharField(allow_null=True, help_text="Always null.")


def line(most: int) -> Schema:
    """One line of text that has so many characters at most, without the blanks around it."""
    return {"type": "string", "minLength": 1, "pattern": rf"^\s*\S(.{{0,{most - 2}}}\S)?\s*$"}


UUID_OR_NULL: Schema = {"type": ["string", "null"], "format": "uuid"}
# What a serializer cannot say of its fields.
NOTES: Mapping[type[Shape], Mapping[str, Schema]] = {
    QuestionShape: {
        "content": {
            "minLength": 1,
            "maxLength": settings.MAX_CONTENT_BYTES,
            "description": f"At most {settings.MAX_CONTENT_BYTES} bytes in UTF-8. No NUL, and not only blanks.",
        },
        "model": {"description": "A slug of `GET /api/models`; without it the default one answers."},
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
