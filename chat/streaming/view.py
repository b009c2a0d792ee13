"""The addresses that stream: a run's events, and a user's feed with or without a run's."""

from __future__ import annotations

from uuid import UUID

from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.views.decorators.csrf import csrf_exempt

from chat import problems
from chat.api.authentication import Credential
from chat.models import Run
from chat.streaming import rows
from chat.streaming.entrance import (
    admitted,
    event_stream,
    readable_run,
    refusing,
    streams_of,
    take_seat,
    when_ended,
)
from chat.streaming.listener import listen, merged
from chat.streaming.opening import followed, requested_place


@csrf_exempt  # it changes nothing
@refusing
async def run_events(request: ASGIRequest, run_id: UUID) -> HttpResponseBase:
    """Stream a run; a client that reconnects resumes behind its last event id. 204 when it has had the last one."""
    credential, run = await rows.ask(lambda: _with_run(request, run_id))
    place = requested_place(request, run)
    if place.is_at_end:
        return HttpResponse(status=204)
    take_seat(request, credential)
    return event_stream(request, await followed(streams_of(request), run, place))


@csrf_exempt
@refusing
async def user_events(request: ASGIRequest) -> HttpResponseBase:
    """Stream what happens to the user's chats, and the events of the run that `run` names until its end."""
    credential, run = await rows.ask(lambda: _with_named_run(request))
    place = requested_place(request, run) if run else None
    take_seat(request, credential)
    streams, user_id = streams_of(request), credential.user.pk
    inbox = await streams.feeds.join(user_id)
    when_ended(request).callback(streams.feeds.leave, user_id, inbox)
    feed = listen(inbox, credential.session)
    if run and place and not place.is_at_end:
        feed = merged(feed, await followed(streams, run, place))
    return event_stream(request, feed)


def _with_run(request: HttpRequest, run_id: UUID) -> tuple[Credential, Run]:
    credential = admitted(request)
    return credential, readable_run(credential, run_id)


def _with_named_run(request: HttpRequest) -> tuple[Credential, Run | None]:
    credential = admitted(request)
    named = request.GET.get("run", "")
    return credential, readable_run(credential, _run_id(named)) if named else None


def _run_id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise problems.NotFound from None
