"""Chats, messages and runs of whoever asks; what belongs to somebody else is not found."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast
from uuid import UUID

from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from chat import problems, services
from chat.api import paging
from chat.api.serializers import ChatShape, MessageShape, NewChatShape, QuestionShape, RunShape, stream_path
from chat.models import Chat, Message, Run, User
from scheduler.models import Model


class Chats(APIView):
    """`/api/chats`"""

    def get(self, request: Request) -> Response:
        """The user's chats, most recently active first."""
        rows, following = paging.chats(_user(request), request)
        return Response({"results": ChatShape(rows, many=True).data, "next": following})

    def post(self, request: Request) -> Response:
        """Open a chat."""
        NewChatShape(data=request.data).is_valid(raise_exception=True)
        chat = Chat.objects.create(owner=_user(request))
        chat.refresh_from_db()  # its times are the database's
        return Response(ChatShape(chat).data, status=201)


class ChatDetail(APIView):
    """`/api/chats/{id}`"""

    def get(self, request: Request, chat_id: UUID) -> Response:
        """One chat."""
        chats = Chat.objects.visible_to(_user(request)).with_live_run()
        return Response(ChatShape(get_object_or_404(chats, pk=chat_id)).data)


class Messages(APIView):
    """`/api/chats/{id}/messages`"""

    def get(self, request: Request, chat_id: UUID) -> Response:
        """The newest messages, in reading order; `next` leads to older ones."""
        rows, older = paging.messages(_chat(request, chat_id), request)
        shown = MessageShape(rows, many=True, context={"runs": _runs_of(rows)})
        return Response({"results": shown.data, "next": older})

    def post(self, request: Request, chat_id: UUID) -> Response:
        """Ask, and be told where the answer will be."""
        chat = _chat(request, chat_id)
        question = QuestionShape(data=request.data)
        question.is_valid(raise_exception=True)
        asked = question.validated_data
        user = _user(request)
        model = Model.objects.pick(user.tier.slug, asked["model"])
        run = services.ask(user, chat, asked["content"], model, asked["max_output_tokens"])
        return Response({"run_id": run.pk, "message_id": run.prompt_id, "stream": stream_path(run)}, status=202)


class RunDetail(APIView):
    """`/api/runs/{id}`"""

    def get(self, request: Request, run_id: UUID) -> Response:
        """One run."""
        return Response(RunShape(get_object_or_404(Run.objects.visible_to(_user(request)), pk=run_id)).data)


def not_found(_request: HttpRequest) -> HttpResponse:
    """Any other address below /api/."""
    return problems.response(problems.NotFound())


def _user(request: Request) -> User:
    return cast(User, request.user)


def _chat(request: Request, chat_id: UUID) -> Chat:
    return get_object_or_404(Chat.objects.visible_to(_user(request)), pk=chat_id)


def _runs_of(messages: Iterable[Message]) -> dict[UUID, Run]:
    """By message id: the run that made it, or the latest that answers it."""
    ids = [message.pk for message in messages]
    found: dict[UUID, Run] = {}
    replies = Run.objects.filter(Q(prompt__in=ids) | Q(answer__in=ids), kind=Run.Kind.REPLY)
    for run in replies.order_by("id"):
        found |= {message_id: run for message_id in (run.prompt_id, run.answer_id) if message_id}
    return found
