"""Shapes of what comes in and goes out; the rules are in the services."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar
from uuid import UUID

from django.urls import reverse
from rest_framework import serializers

from chat.content import is_one_line
from chat.models import Chat, Message, Run
from chat.usage import of_chat
from scheduler.auto import Reason


class TextField(serializers.Field[str, str, str, Any]):
    """Text as it is: not trimmed, and numbers are not taken for it."""

    default_error_messages: ClassVar = {"not_text": "This must be a string."}

    def to_internal_value(self, data: str) -> str:
        """Any string passes."""
        if not isinstance(data, str):
            self.fail("not_text")
        return data


class TitleField(TextField):
    """A chat's name: one line of text, without the blanks around it."""

    MAX_LENGTH = 200

    default_error_messages: ClassVar = {
        "blank": "A title must not be blank.",
        "too_long": f"A title has at most {MAX_LENGTH} characters.",
        "invalid": "A title is one line of text, without control characters.",
    }

    def to_internal_value(self, data: str) -> str:
        """The trimmed title."""
        title = super().to_internal_value(data).strip()
        if not title:
            self.fail("blank")
        if len(title) > self.MAX_LENGTH:
            self.fail("too_long")
        if not is_one_line(title):
            self.fail("invalid")
        return title


class PositiveField(serializers.Field[int, int, int, Any]):
    """A positive whole number, written as one."""

    default_error_messages: ClassVar = {"invalid": "This must be a positive whole number."}

    def to_internal_value(self, data: int) -> int:
        """`true` is an int in Python, and none here."""
        if isinstance(data, bool) or not isinstance(data, int) or data < 1:
            self.fail("invalid")
        return data


class IdField(serializers.Field[UUID, str, str, Any]):
    """The id of something, as the API writes it."""

    default_error_messages: ClassVar = {"invalid": "This must be an id: a UUID, as a string."}

    def to_internal_value(self, data: str) -> UUID:
        """Whether there is such a thing is for others to say."""
        try:
            return UUID(data)
        except (ValueError, AttributeError, TypeError):  # of strings; of numbers and the like
            self.fail("invalid")


class NewChatShape(serializers.Serializer[Any]):
    """`POST /api/chats`."""

    continues = IdField(default=None, allow_null=True)


class QuestionShape(serializers.Serializer[Any]):
    """`POST /api/chats/{id}/messages`. Keys that are not known are ignored, here and elsewhere."""

    content = TextField()
    model = TextField(default=None, allow_null=True)
    max_output_tokens = PositiveField(default=None, allow_null=True)


class RenamingShape(serializers.Serializer[Any]):
    """`PATCH /api/chats/{id}`."""

    title = TitleField()


class ChatShape(serializers.ModelSerializer[Chat]):
    """A chat, with the id of the run that is answering in it now."""

    live_run_id = serializers.UUIDField(read_only=True, default=None)
    continues = serializers.UUIDField(source="continues_id", read_only=True)

    class Meta:
        model = Chat
        fields = ("id", "title", "created_at", "updated_at", "live_run_id", "continues")


class ChatDetailShape(ChatShape):
    """One chat, with what its replies took."""

    usage = serializers.SerializerMethodField()

    class Meta(ChatShape.Meta):
        fields = (*ChatShape.Meta.fields, "usage")  # type: ignore[assignment]

    def get_usage(self, chat: Chat) -> dict[str, int]:
        """Runs and tokens."""
        return of_chat(chat)


class MessageShape(serializers.ModelSerializer[Message]):
    """A message. `run` made it, or answers it; `runs` in the context has them by message id."""

    run = serializers.SerializerMethodField()

    class Meta:
        model = Message
        fields = ("id", "role", "content", "token_count", "created_at", "run")

    def get_run(self, message: Message) -> dict[str, Any] | None:
        """The run's id and status."""
        runs: Mapping[UUID, Run] = self.context["runs"]
        run = runs.get(message.pk)
        return {"id": run.pk, "status": run.status} if run else None


class RunShape(serializers.ModelSerializer[Run]):
    """A run with its counts and times."""

    model = serializers.CharField(source="model_id")
    tier = serializers.CharField(source="tier_id")
    auto = serializers.SerializerMethodField()
    error = serializers.SerializerMethodField()
    stream = serializers.SerializerMethodField()

    class Meta:
        model = Run
        fields = (
            *("id", "chat_id", "prompt_id", "answer_id", "kind", "model", "auto", "tier", "status", "attempt"),
            *("max_output_tokens", "input_tokens", "cached_tokens", "output_tokens", "charged_tokens"),
            *("epoch", "left_out", "finish_reason", "error"),
            *("created_at", "released_at", "started_at", "first_token_at", "finished_at", "stream"),
        )

    def get_auto(self, run: Run) -> dict[str, Any] | None:
        """Why Auto chose its model."""
        reason = Reason.read(run.auto)
        return dict(reason.shown()) if reason else None

    def get_error(self, run: Run) -> dict[str, str] | None:
        """Why it failed."""
        return {"code": run.error_code, "detail": run.error_detail} if run.error_code else None

    def get_stream(self, run: Run) -> str:
        """Where to follow it."""
        return stream_path(run)


def stream_path(run: Run) -> str:
    """The path of the run's event stream."""
    return f"{reverse('run', args=[run.pk])}/stream"
