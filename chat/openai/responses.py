"""`/v1/responses`: one answer, which may be read later, and from which the next may go on."""

from __future__ import annotations

import re
from contextlib import aclosing
from functools import partial
from typing import cast
from uuid import UUID

from django.core.handlers.asgi import ASGIRequest
from django.http import HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response

from chat import auto, cancelling, programs
from chat.models import Run, RunQuerySet, User
from chat.openai import conversation, fields
from chat.openai.base import OpenAIView
from chat.openai.body import MOST_TOKENS, TEMPERATURES, TOP_PS, Body
from chat.openai.connection import Cancels, Connection, Events
from chat.openai.names import run_of
from chat.openai.response_events import BEFORE, Numbered, place_behind
from chat.openai.response_object import READ, described, read
from chat.problems import FieldInvalid, NotFound
from chat.programs import Asked
from chat.streaming.entrance import Deferred, EventStream
from chat.wishes import Wishes
from scheduler.auto import Pick


class PreviousNotFound(NotFound):
    """What a response is to go on from."""

    code = "previous_response_not_found"
    detail = "There is no such response of yours, or it was not kept."

    def __init__(self) -> None:
        super().__init__(field="previous_response_id")


class Responses(OpenAIView):
    """`/v1/responses`"""

    def post(self, request: Request) -> HttpResponseBase:
        """Answer: at once and for later, piece by piece, or in the end as a whole."""
        body, user, asking = Body(request.data, fields.RESPONSE), _user(request), cast(ASGIRequest, request._request)
        is_stream, is_background = body.flag("stream"), body.flag("background")
        run = _begun(user, body)
        if is_background and not is_stream:
            return Response(described(run))
        cancels = Cancels.WHEN_REFUSED if is_background else Cancels.WHEN_LEFT
        connection = Connection(asking, user.pk, run, cancels)
        if is_stream:
            return EventStream(asking, partial(connection.streamed, Numbered(run).told))
        return Deferred(asking, partial(connection.awaited, partial(_whole, run.pk)))


class ResponseDetail(OpenAIView):
    """`/v1/responses/{id}`"""

    def get(self, request: Request, response_id: UUID) -> HttpResponseBase:
        """As it is now, or with `stream=true` its events behind `starting_after`, to its end."""
        run = _kept(request, response_id)
        if request.query_params.get("stream") != "true":
            return Response(described(run))
        numbered, asking = Numbered(run, _starting_after(request, run)), cast(ASGIRequest, request._request)
        connection = Connection(asking, _user(request).pk, run, Cancels.NEVER, numbered.place)
        return EventStream(asking, partial(connection.streamed, numbered.told))


class CancelResponse(OpenAIView):
    """`/v1/responses/{id}/cancel`"""

    def post(self, request: Request, response_id: UUID) -> Response:
        """Stop it, and show it as it is now: its worker may need a moment."""
        cancelling.cancel(_kept(request, response_id))
        return Response(described(_kept(request, response_id)))


def _begun(user: User, body: Body) -> Run:
    said = body.get("input")
    messages = [{"role": "user", "content": said}] if isinstance(said, str) else said
    system, said = conversation.read(messages, "input")
    previous = _previous(user, body)
    is_kept = body.flag("store", default=True)
    if body.flag("background") and not is_kept:
        raise FieldInvalid("store_invalid", "What is read later must be kept: leave `store` out.", "store")
    slug = body.text("model")
    if not slug and not previous:
        raise FieldInvalid("model_missing", "Name a model: GET /v1/models has those there are.", "model")
    wishes = Wishes(
        instructions=body.text("instructions"),
        system=system,
        temperature=body.number("temperature", *TEMPERATURES),
        top_p=body.number("top_p", *TOP_PS),
        background=body.flag("background"),
        previous_response_id=body.text("previous_response_id"),
    )
    cap = body.whole("max_output_tokens", 1, MOST_TOKENS)
    pick = auto.again(user, previous) if previous and not slug else Pick.of(user.tier.slug, slug)
    asked = Asked(said, pick.model, wishes, cap, is_kept, pick.rules)
    return programs.go_on(user, previous, asked) if previous else programs.ask(user, asked)


def _previous(user: User, body: Body) -> Run | None:
    name = body.text("previous_response_id")
    if name is None:
        return None
    run_id = run_of(name)
    run = _readable(user).filter(pk=run_id).first() if run_id else None
    if run is None:
        raise PreviousNotFound
    return run


async def _whole(run_id: UUID, events: Events) -> HttpResponse:
    """The object, once the run is over."""
    async with aclosing(events):
        async for _ in events:
            pass
    return JsonResponse(described(await read(run_id)))


def _starting_after(request: Request, run: Run) -> int:
    text = request.query_params.get("starting_after")
    if text is None:
        return BEFORE
    is_number = re.fullmatch(r"[0-9]{1,16}", text)
    if not is_number or place_behind(int(text)).heard > max(1, run.attempt):
        detail = "This must be the `sequence_number` of an event of this response."
        raise FieldInvalid("starting_after_invalid", detail, "starting_after")
    return int(text)


def _kept(request: Request, run_id: UUID) -> Run:
    return get_object_or_404(_readable(_user(request)), pk=run_id)


def _readable(user: User) -> RunQuerySet:
    return READ.visible_to(user).filter(chat__is_kept=True)


def _user(request: Request) -> User:
    return cast(User, request.user)
