"""Who may open a stream, and what is held while it is open."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import ExitStack
from uuid import UUID

from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django_eventstream.utils import add_default_headers, get_channelmanager

from chat import problems, throttles
from chat.api import allowance
from chat.api.authentication import Credential, authenticate
from chat.api.middleware import answered
from chat.models import Run
from chat.streaming.channels import COLUMNS, channel
from chat.streaming.service import Streams

# Goes on with an answer on the event loop: a stream, or one that took long. What is held meanwhile is given back at the
# end, by what is left on the stack.
Opening = Callable[[ExitStack], Awaitable[AsyncGenerator[bytes, None] | HttpResponse]]


class Deferred(StreamingHttpResponse):
    """An answer that may be begun now, by whoever serves it (chatsite/asgi.py), where nobody waits for a thread."""

    def __init__(self, request: HttpRequest, opening: Opening, content_type: str = "application/json") -> None:
        super().__init__((), content_type=content_type)
        self.opening = opening
        self._request = request

    def refused(self, error: Exception) -> HttpResponse:
        """What is answered in its place."""
        return self.become(answered(self._request, error))

    def become(self, answer: HttpResponse) -> HttpResponse:
        """The answer, with what middleware said of all answers."""
        for name, value in self.headers.items():
            answer.headers.setdefault(name, value)
        return answer


class EventStream(Deferred):
    """A stream of events."""

    def __init__(self, request: HttpRequest, opening: Opening) -> None:
        super().__init__(request, opening, "text/event-stream; charset=utf-8")
        # So that proxies hold nothing back.
        add_default_headers(self.headers, request)
        self.headers["Cache-Control"] = "no-cache, no-transform"
        # nginx compresses in spite of no-transform, but not what is encoded already.
        self.headers["Content-Encoding"] = "identity"


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


def readable_runs(credential: Credential, run_ids: Sequence[UUID]) -> Sequence[Run]:
    """The runs, in that order, when all are the user's; in one query. Blocks. Raises `NotFound`."""
    if len(run_ids) < 2:
        return [readable_run(credential, run_id) for run_id in run_ids]
    found = Run.objects.visible_to(credential.user).only(*COLUMNS).in_bulk(run_ids)
    if len(found) < len(run_ids):
        raise problems.NotFound()
    return [found[run_id] for run_id in run_ids]


def streams_of(request: ASGIRequest) -> Streams:
    """This process's streams, put there when it started (chatsite/asgi.py). For its event loop."""
    streams: Streams = request.scope["state"]["streams"]
    return streams


def requests_of(request: ASGIRequest) -> Streams:
    """Likewise, for who cannot come back: of a process that stops they end last."""
    streams: Streams = request.scope["state"]["requests"]
    return streams
