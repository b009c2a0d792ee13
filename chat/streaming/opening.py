"""How streams are opened on the event loop: a run from wherever its reader left off, a user's feed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import ExitStack
from uuid import UUID

from redis.exceptions import RedisError

from chat.api.authentication import Credential
from chat.models import Run, Status
from chat.streaming.follower import backlog
from chat.streaming.hub import Live
from chat.streaming.listener import listen, merged, of_run
from chat.streaming.naming import Part
from chat.streaming.place import Place
from chat.streaming.refusals import BadEventId, StreamsUnavailable
from chat.streaming.service import Streams
from inference.streams import EntryId, newest

logger = logging.getLogger(__name__)

# Two minutes of a run, whose writer adds an entry every 30 ms at most.
MAX_AHEAD = 4000


async def run_events(streams: Streams, user_id: UUID, part: Part, ended: ExitStack) -> AsyncGenerator[bytes, None]:
    """A run's events. Raises `TooManyStreams`, `StreamsFull`, and as `followed` does."""
    ended.callback(streams.seats.take(user_id))
    return await followed(streams, part.run, part.place)


async def user_events(
    streams: Streams, credential: Credential, parts: Sequence[Part], ended: ExitStack
) -> AsyncGenerator[bytes, None]:
    """A user's feed, and the events of runs with it until their ends. Raises as `run_events` does."""
    user_id = credential.user.pk
    ended.callback(streams.seats.take(user_id))
    inbox = await streams.feeds.join(user_id)
    ended.callback(streams.feeds.leave, user_id, inbox)
    feed = listen(inbox, credential.session)
    ahead = [part for part in parts if not part.place.is_at_end]
    runs = await asyncio.gather(*(followed(streams, part.run, part.place) for part in ahead))
    named = [of_run(part.run.pk, events) for part, events in zip(ahead, runs, strict=True)]
    return merged(feed, *named) if named else feed


async def followed(streams: Streams, run: Run, place: Place) -> AsyncGenerator[bytes, None]:
    """The run's events from the place on, as SSE bytes. Raises `BadEventId`, `StreamsUnavailable`."""
    live = Live(run.pk, run.model_id, run.tier_id)
    is_live = not Status(run.status).is_terminal
    try:
        entries = await backlog(streams.redis, live, place)
        reached = await newest(streams.redis, run.pk) if is_live and not entries else None
    except (RedisError, OSError) as failure:
        if is_live:
            logger.warning("stream.unavailable run=%s %s: %s", run.pk, type(failure).__name__, failure)
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
