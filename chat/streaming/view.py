"""The addresses that stream: a run's events, and a user's feed with or without those of runs."""

from __future__ import annotations

from functools import partial
from uuid import UUID

from django.core.handlers.asgi import ASGIRequest
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.views.decorators.csrf import csrf_exempt

from chat.streaming import naming, opening
from chat.streaming.entrance import EventStream, admitted, readable_run, streams_of
from chat.streaming.naming import Part


@csrf_exempt  # it changes nothing
def run_events(request: ASGIRequest, run_id: UUID) -> HttpResponseBase:
    """Stream a run; a client that reconnects resumes behind its last event id. 204 when it has had the last one."""
    credential = admitted(request)
    run = readable_run(credential, run_id)
    place = naming.requested_place(request, run)
    if place.is_at_end:
        return HttpResponse(status=204)
    reader = credential.user.pk
    return EventStream(request, partial(opening.run_events, streams_of(request), reader, Part(run, place)))


@csrf_exempt
def user_events(request: ASGIRequest) -> HttpResponseBase:
    """Stream what happens to the user's chats, and the events of the runs that `run` names, each until its end."""
    credential = admitted(request)
    parts = naming.parts(request, credential)
    return EventStream(request, partial(opening.user_events, streams_of(request), credential, parts))
