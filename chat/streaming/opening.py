"""How streams are opened on the event loop: a run from wherever its reader left off, a user's feed."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import ExitStack
from dataclasses import dataclass
from uuid import UUID

from django.http import HttpRequest
from redis.exceptions import RedisError

from chat.api.authentication import Credential
from chat.models import Run, Status
from chat.streaming.follower import backlog
from chat.streaming.hub import Live
from chat.streaming.listener import listen, merged
from chat.streaming.place import Place
from chat.streaming.refusals import BadEventId, StreamsUnavailable
from chat.streaming.service import Streams
from inference.streams import EntryId, MalformedId, newest

# Two minutes of a run, whose writer adds an entry every 30 ms at most.
MAX_AHEAD = 4000


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


@dataclass(frozen=True, slots=True)
class Part:
    """A run, as its row was a moment ago, from a place on."""

    run: Run
    place: Place


async def run_events(streams: Streams, user_id: UUID, part: Part, ended: ExitStack) -> AsyncGenerator[bytes, None]:
    """A run's events. Raises `TooManyStreams`, `StreamsFull`, and as `followed` does."""
    ended.callback(streams.seats.take(user_id))
    return await followed(streams, part.run, part.place)


async def user_events(
    streams: Streams, credential: Credential, part: Part | None, ended: ExitStack
) -> AsyncGenerator[bytes, None]:
    """A user's feed, and a run's events with it until its end. Raises as `run_events` does."""
    user_id = credential.user.pk
    ended.callback(streams.seats.take(user_id))
    inbox = await streams.feeds.join(user_id)
    ended.callback(streams.feeds.leave, user_id, inbox)
    feed = listen(inbox, credential.session)
    if part and not part.place.is_at_end:
        return merged(feed, await followed(streams, part.run, part.place))
    return feed


async def followed(streams: Streams, run: Run, place: Place) -> AsyncGenerator[bytes, None]:
    """The run's events from the place on, as SSE bytes. Raises `BadEventId`, `StreamsUnavailable`."""
    live = Live(run.pk, run.model_id, run.tier_id)
    is_live = not Status(run.status).is_terminal
    try:
        entries = await backlog(streams.redis, live, place)
        reached = await newest(streams.redis, run.pk) if is_live and not entries else None
    except (RedisError, OSError) as failure:
        if is_live:
            raise StreamsUnavailable() from failure
        entries, reached = [], None  # an ended run is whole in Postgres
    if reached is not None:
        _refuse_far(place, reached)
    is_lost = run.status == Status.STREAMING and not entries and reached is None
    return streams.follower(live, place).events(entries, is_live=is_live, is_lost=is_lost)


def _refuse_far(place: Place, reached: EntryId) -> None:
    """Raises `BadEventId` for a place that the run cannot have reached: its reader would wait in silence.

    Redis may have lost its last seconds, so that honest readers are ahead of it.
    """
    if place.entry is not None:
        ahead = place.entry.seq - (reached.seq if reached.attempt == place.entry.attempt else 0)
        if reached < place.entry and ahead > MAX_AHEAD:
            raise BadEventId()
