"""Chats, messages and runs of whoever asks; what belongs to somebody else is not found."""

from __future__ import annotations

from typing import cast
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response

from chat import announcements, cancelling, problems, services
from chat.api import paging
from chat.api.base import View
from chat.api.idempotency import once
from chat.api.serializers import (
    ChatDetailShape,
    ChatShape,
    MessageShape,
    NewChatShape,
    QuestionShape,
    RenamingShape,
    RunShape,
    stream_path,
)
from chat.lists import listed
from chat.models import Chat, IdempotencyKey, Message, Run, Status, User
from chatsite.database.prepared import Prepared
from scheduler.auto import Pick

CHAT = Prepared(
    lambda owner, chat: Chat.objects.visible_to(User(pk=owner)).filter(pk=chat), owner=UUID(int=1), chat=UUID(int=2)
)


class Chats(View):
    """`/api/chats`"""

    is_revalidated = True

    def get(self, request: Request) -> Response:
        """The user's chats, most recently active first."""
        rows, following = listed(request, lambda: paging.chats(_user(request), request))
        return Response({"results": ChatShape(rows, many=True).data, "next": following})

    def post(self, request: Request) -> Response:
        """Open a chat, which may go on from another."""

        def act(key: IdempotencyKey | None) -> Response:
            return _opened(services.open_chat(_user(request), key, _origin(request)))

        return once(request, act, again=lambda made: _opened(_chat_with_live_run(request, made)))


class ChatDetail(View):
    """`/api/chats/{id}`"""

    is_revalidated = True

    def get(self, request: Request, chat_id: UUID) -> Response:
        """One chat."""
        return Response(ChatDetailShape(_chat_with_live_run(request, chat_id)).data)

    def patch(self, request: Request, chat_id: UUID) -> Response:
        """Rename it, which is no activity."""
        chat = _chat(request, chat_id)
        naming = RenamingShape(data=request.data)
        naming.is_valid(raise_exception=True)
        Chat.objects.filter(pk=chat.pk).update(title=naming.validated_data["title"])
        renamed = _chat_with_live_run(request, chat_id)
        announcements.changed(renamed)
        return Response(ChatShape(renamed).data)

    def delete(self, request: Request, chat_id: UUID) -> Response:
        """Delete it with all that is in it."""
        services.delete(_user(request), _chat(request, chat_id))
        return Response(status=204)


class Messages(View):
    """`/api/chats/{id}/messages`"""

    is_revalidated = True

    def get(self, request: Request, chat_id: UUID) -> Response:
        """The newest messages, in reading order; `next` leads to older ones."""
        chat = _chat(request, chat_id)

        def read() -> tuple[list[Message], str | None, dict[UUID, Run]]:
            rows, older = paging.messages(chat, request)
            return rows, older, Run.objects.by_message(rows)

        rows, older, runs = listed(request, read)
        return Response({"results": MessageShape(rows, many=True, context={"runs": runs}).data, "next": older})

    def post(self, request: Request, chat_id: UUID) -> Response:
        """Ask, and be told where the answer will be."""

        def act(key: IdempotencyKey | None) -> Response:
            chat, user = _chat(request, chat_id), _user(request)
            return _queued(services.ask(user, chat, _question(request), key))

        return once(request, act, again=lambda made: _queued(_run(request, made)))


class MessageDetail(View):
    """`/api/messages/{id}`"""

    is_revalidated = True

    def get(self, request: Request, message_id: UUID) -> Response:
        """One message, as it was written."""
        message = get_object_or_404(Message, pk=message_id, chat__in=Chat.objects.visible_to(_user(request)))
        return Response(MessageShape(message, context={"runs": Run.objects.by_message([message])}).data)


class RunDetail(View):
    """`/api/runs/{id}`"""

    def get(self, request: Request, run_id: UUID) -> Response:
        """One run."""
        return Response(RunShape(_run(request, run_id)).data)


class CancelRun(View):
    """`/api/runs/{id}/cancel`"""

    def post(self, request: Request, run_id: UUID) -> Response:
        """Stop a run: 202; 200 for one that had ended before."""
        run = _run(request, run_id)
        had_ended = Status(run.status).is_terminal
        return Response(RunShape(cancelling.cancel(run)).data, status=200 if had_ended else 202)


class RetryRun(View):
    """`/api/runs/{id}/retry`"""

    def post(self, request: Request, run_id: UUID) -> Response:
        """Have its question answered again."""

        def act(key: IdempotencyKey | None) -> Response:
            return _queued(services.retry(_user(request), _run(request, run_id), key))

        return once(request, act, again=lambda made: _queued(_run(request, made)))


def not_found(_request: HttpRequest) -> HttpResponse:
    """Any other address below /api/."""
    return problems.response(problems.NotFound())


def _user(request: Request) -> User:
    return cast(User, request.user)


def _chat(request: Request, chat_id: UUID) -> Chat:
    chat = CHAT.first(owner=_user(request).pk, chat=chat_id)
    if chat is None:
        raise problems.NotFound
    return chat


def _chat_with_live_run(request: Request, chat_id: UUID) -> Chat:
    return get_object_or_404(Chat.objects.visible_to(_user(request)).with_live_run(), pk=chat_id)


def _run(request: Request, run_id: UUID) -> Run:
    runs = Run.objects.visible_to(_user(request)).select_related("chat", "prompt")
    return get_object_or_404(runs, pk=run_id)


def _origin(request: Request) -> Chat | None:
    shape = NewChatShape(data=request.data)
    shape.is_valid(raise_exception=True)
    chat_id = shape.validated_data["continues"]
    return _chat(request, chat_id) if chat_id else None


def _question(request: Request) -> services.Question:
    shape = QuestionShape(data=request.data)
    shape.is_valid(raise_exception=True)
    asked = shape.validated_data
    pick = Pick.of(_user(request).tier.slug, asked["model"])
    return services.Question(asked["content"], pick.model, asked["max_output_tokens"], pick.rules)


def _opened(chat: Chat) -> Response:
    return Response(ChatShape(chat).data, status=201)


def _queued(run: Run) -> Response:
    return Response({"run_id": run.pk, "message_id": run.prompt_id, "stream": stream_path(run)}, status=202)
