"""Who may open a stream, and what is held while it is open."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import ExitStack
from functools import wraps
from typing import Any, Concatenate, ParamSpec
from uuid import UUID

from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django_eventstream.utils import add_default_headers, get_channelmanager

from chat import problems, throttles
from chat.api import allowance
from chat.api.authentication import Credential, authenticate
from chat.api.errors import problem_of
from chat.models import Run
from chat.streaming.channels import channel
from chat.streaming.service import Streams

Args = ParamSpec("Args")
View = Callable[Concatenate[ASGIRequest, Args], Coroutine[Any, Any, HttpResponseBase]]


def refusing(view: View[Args]) -> View[Args]:
    """Answer the view's refusals as problems, before any event."""

    @wraps(view)
    async def refusing_view(request: ASGIRequest, /, *args: Args.args, **kwargs: Args.kwargs) -> HttpResponseBase:
        try:
            return await view(request, *args, **kwargs)
        except Exception as error:
            problem = problem_of(error)
            if problem is None:
                raise
            return problems.response(problem)

    return refusing_view


def admitted(request: HttpRequest) -> Credential:
    """Who asks. Blocks. Raises `NotAuthenticated`, `scheduler.errors.TooManyRequests`, `MethodNotAllowed`."""
    credential = authenticate(request)
    allowance.note(request, credential)
    throttles.requests().take(credential.name)
    if request.method != "GET":
        raise problems.MethodNotAllowed(headers={"Allow": "GET"})
    return credential


def readable_run(credential: Credential, run_id: UUID) -> Run:
    """The run, when it is the user's. Blocks. Raises `NotFound`."""
    run: Run | None = get_channelmanager().readable(credential.user, channel(run_id))
    if run is None:
        raise problems.NotFound()
    return run


def streams_of(request: ASGIRequest) -> Streams:
    """This process's streams, put there when it started (chatsite/asgi.py)."""
    streams: Streams = request.scope["state"]["streams"]
    return streams


def when_ended(request: ASGIRequest) -> ExitStack:
    """What is done when the request is over: also when its client left before the first byte."""
    ended: ExitStack = request.scope["ended"]
    return ended


def take_seat(request: ASGIRequest, credential: Credential) -> None:
    """Count the stream for as long as it is open. Raises `TooManyStreams`, `StreamsFull`."""
    when_ended(request).callback(streams_of(request).seats.take(credential.user.pk))


def event_stream(request: HttpRequest, events: AsyncGenerator[bytes, None]) -> StreamingHttpResponse:
    """The response, with headers that keep proxies from holding events back."""
    response = StreamingHttpResponse(events, content_type="text/event-stream; charset=utf-8")
    add_default_headers(response.headers, request)
    response.headers["Cache-Control"] = "no-cache, no-transform"
    return response
