"""Which runs an address names, and from where on: a run alone, or several in a user's feed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from django.http import HttpRequest

from chat import problems
from chat.api.authentication import Credential
from chat.models import Run, Status
from chat.streaming.entrance import readable_runs
from chat.streaming.place import Place
from chat.streaming.refusals import BadEventId, TooManyNamed
from inference.streams import MalformedId

# Twice what the largest of the first tiers has live at once: a page also reads a run's end after it is over.
MAX_RUNS = 16


@dataclass(frozen=True, slots=True)
class Part:
    """A run, as its row was a moment ago, from a place on."""

    run: Run
    place: Place


def requested_place(request: HttpRequest, run: Run, named: str = "") -> Place:
    """Where the client left off. Raises `BadEventId` for what can be no id of this run."""
    # A browser reconnects to the address it was given: its header is newer than what is named in there.
    texts = [request.headers.get("Last-Event-ID", ""), named, *reversed(request.GET.getlist("lastEventId"))]
    return _place(next(filter(None, texts), ""), run)


def parts(request: HttpRequest, credential: Credential) -> Sequence[Part]:
    """The runs that a feed's address names, each as `<id>` or `<id>:<last event id>`. Blocks.

    Raises `NotFound`, `BadEventId`, `TooManyNamed`. Of several runs no header can tell where they were left.
    """
    named = _named(request)
    runs = readable_runs(credential, list(named))
    if len(runs) == 1:
        return [Part(run, requested_place(request, run, named[run.pk])) for run in runs]
    return [Part(run, _place(named[run.pk], run)) for run in runs]


def _named(request: HttpRequest) -> Mapping[UUID, str]:
    named = dict[UUID, str]()
    for text in filter(None, request.GET.getlist("run")):
        run_id, _, place = text.partition(":")
        named[_run_id(run_id)] = place
    if len(named) > MAX_RUNS:
        raise TooManyNamed(MAX_RUNS)
    return named


def _run_id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise problems.NotFound from None


def _place(text: str, run: Run) -> Place:
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
