"""`GET /api/runs/{id}/stream`: a run's events, from wherever the client left off."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.views.decorators.csrf import csrf_exempt
from django_eventstream.utils import add_default_headers, get_channelmanager
from redis.exceptions import RedisError

from chat import problems
from chat.api.authentication import authenticate
from chat.models import Run, Status
from chat.streaming import rows
from chat.streaming.channels import channel
from chat.streaming.follower import Follower, backlog
from chat.streaming.hub import Live
from chat.streaming.place import Place
from chat.streaming.refusals import BadEventId, StreamsUnavailable
from chat.streaming.service import Streams
from inference.streams import Entry, MalformedId, newest


@csrf_exempt  # it changes nothing
async def run_events(request: HttpRequest, run_id: UUID) -> HttpResponseBase:
    """Stream a run; a client that reconnects resumes behind its last event id. 204 when it has had the last one."""
    try:
        run = await rows.ask(lambda: readable_run(request, run_id))
        place = requested_place(request, run)
        if place.is_at_end:
            return HttpResponse(status=204)
        return await _streamed(request, run, place)
    except problems.Problem as problem:
        return problems.response(problem)


def readable_run(request: HttpRequest, run_id: UUID) -> Run:
    """The run that the request asks for. Raises `NotAuthenticated`, `NotFound`, `MethodNotAllowed`."""
    if request.method != "GET":
        raise problems.MethodNotAllowed(headers={"Allow": "GET"})
    run: Run | None = get_channelmanager().readable(authenticate(request), channel(run_id))
    if run is None:
        raise problems.NotFound()
    return run


def requested_place(request: HttpRequest, run: Run) -> Place:
    """Where the client left off. Raises `BadEventId` for what can be no id of this run."""
    # A browser reconnects to the address it was given: its header is newer than a `lastEventId` in there.
    named = [request.headers.get("Last-Event-ID", ""), *reversed(request.GET.getlist("lastEventId"))]
    text = next(filter(None, named), "")
    if not text:
        return Place()
    try:
        place = Place.parse(text)
    except MalformedId as malformed:
        raise BadEventId() from malformed
    if not _is_issued(place, run):
        raise BadEventId()
    return place


def _is_issued(place: Place, run: Run) -> bool:
    if place.entry is None or place.entry.attempt > run.attempt:
        return False
    is_last = Status(run.status).is_terminal and place.entry.attempt == run.attempt
    return is_last or not place.is_at_end


async def _streamed(request: HttpRequest, run: Run, place: Place) -> StreamingHttpResponse:
    streams = _streams(request)
    live = Live(run.pk, run.model_id, run.tier_id)
    is_live = not Status(run.status).is_terminal
    entries = await _opening(streams, live, place, is_live=is_live)
    return event_stream(request, streams.follower(live, place), entries, is_live=is_live)


async def _opening(streams: Streams, live: Live, place: Place, *, is_live: bool) -> Sequence[Entry]:
    try:
        return await _unread(streams, live, place, is_live=is_live)
    except (RedisError, OSError) as failure:
        if is_live:
            raise StreamsUnavailable() from failure
        return []  # an ended run is whole in Postgres


async def _unread(streams: Streams, live: Live, place: Place, *, is_live: bool) -> Sequence[Entry]:
    entries = await backlog(streams.redis, live, place)
    if is_live and not entries:
        await _refuse_future(streams, live, place)
    return entries


async def _refuse_future(streams: Streams, live: Live, place: Place) -> None:
    """Raises `BadEventId` for a place that the stream has not reached: its reader would wait in silence."""
    if place.entry is not None:
        reached = await newest(streams.redis, live.run_id)
        if reached is not None and reached < place.entry:
            raise BadEventId()


def event_stream(
    request: HttpRequest, follower: Follower, entries: Sequence[Entry], *, is_live: bool
) -> StreamingHttpResponse:
    """The response, with headers that keep proxies from holding events back."""
    response = StreamingHttpResponse(
        follower.events(entries, is_live=is_live), content_type="text/event-stream; charset=utf-8"
    )
    add_default_headers(response.headers, request)
    response.headers["Cache-Control"] = "no-cache, no-transform"
    return response


def _streams(request: HttpRequest) -> Streams:
    # Put there when the process started (chatsite/asgi.py): streams need ASGI.
    assert isinstance(request, ASGIRequest)
    streams: Streams = request.scope["state"]["streams"]
    return streams
