"""A client's wait for a run, to its end; where the connection is the request, hanging up before cancels the run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import ExitStack, aclosing
from dataclasses import replace
from enum import Enum, auto
from uuid import UUID

from django.core.handlers.asgi import ASGIRequest
from django.db import DatabaseError, InterfaceError
from django.http import HttpResponse

from chat import cancelling, problems
from chat.models import Run
from chat.streaming import frames, opening, rows
from chat.streaming.entrance import requests_of, streams_of
from chat.streaming.frames import Told
from chat.streaming.place import Place
from chat.streaming.refusals import StreamsUnavailable
from chat.streaming.service import Streams

logger = logging.getLogger(__name__)

# A follower that ended before its run, since the database failed it or its client was slow, is made again: so often
# where it brings nothing.
FOLLOWERS = 5
PAUSE_S = 0.5
# With the database away, a run that nobody reads is cancelled later.
CANCEL_PAUSES_S = (0.0, 1.0, 5.0, 20.0)

BEGINNING = Place()


class Cancels(Enum):
    """When a connection takes its run with it: a client that is refused what it began does not know of it."""

    WHEN_LEFT = auto()
    WHEN_REFUSED = auto()
    NEVER = auto()


Events = AsyncGenerator[Told, None]
Tell = Callable[[Events], AsyncGenerator[bytes, None]]
Make = Callable[[Events], Awaitable[HttpResponse]]


class Connection:
    """One client's wait for one run: made where it is asked for, opened on the event loop."""

    def __init__(
        self, request: ASGIRequest, user_id: UUID, run: Run, cancels: Cancels, place: Place = BEGINNING
    ) -> None:
        self._request = request
        self._user_id = user_id
        self._cancels = cancels
        self._run = run
        self._place = place
        self._is_over = False

    async def streamed(self, tell: Tell, ended: ExitStack) -> AsyncGenerator[bytes, None]:
        """The run's events as `tell` tells them. Raises as `chat.streaming.opening.run_events` does."""
        return tell(self._events(await self._opened(ended)))

    async def awaited(self, make: Make, ended: ExitStack) -> HttpResponse:
        """What `make` makes of the run's events. Raises so as well."""
        return await make(self._events(await self._opened(ended)))

    async def _opened(self, ended: ExitStack) -> AsyncGenerator[bytes, None]:
        if self._cancels is Cancels.WHEN_LEFT:
            ended.callback(self._left)
        try:
            ended.callback(self._streams.seats.take(self._user_id))
            return await self._followed(self._place)
        except BaseException:
            if self._cancels is Cancels.WHEN_REFUSED:
                self._left()
            raise

    async def _events(self, first: AsyncGenerator[bytes, None]) -> Events:
        """To the end of the run. Raises `StreamsUnavailable`, `Stopping` where that cannot be read here any more."""
        events, place, left = first, self._place, FOLLOWERS
        while left:
            begun_at, left = place, left - 1
            async with aclosing(events):
                async for piece in events:
                    for told in without_void(frames.read(piece)):
                        place = told.place or place
                        self._is_over = place.is_at_end
                        yield told
            if self._is_over:
                return
            if self._streams.is_closed:
                raise problems.Stopping
            left = FOLLOWERS if place != begun_at else left
            await asyncio.sleep(PAUSE_S)
            events = await self._followed(place)
        raise StreamsUnavailable

    async def _followed(self, place: Place) -> AsyncGenerator[bytes, None]:
        return await opening.followed(self._streams, self._run, place)

    @property
    def _streams(self) -> Streams:
        return (requests_of if self._cancels is Cancels.WHEN_LEFT else streams_of)(self._request)

    def _left(self) -> None:
        if not self._is_over:
            self._streams.beside(_cancel(self._run))


def without_void(piece: Iterable[Told]) -> Sequence[Told]:
    """What comes at once, without the text in it that is void before anybody was told."""
    kept: list[Told] = []
    for told in piece:
        first = next((each.data["offset"] for each in kept if each.name == "delta"), None)
        if told.name == "reset" and first is not None and first <= told.data["offset"]:
            kept = [cut for each in kept if (cut := _cut(each, told.data["offset"]))]
        else:
            kept.append(told)
    return kept


def _cut(told: Told, offset: int) -> Told | None:
    """The event without text from there on; None where nothing is left of it."""
    if told.name != "delta" or told.place is None or told.place.offset <= offset:
        return told
    start = told.data["offset"]
    data = {"text": told.data["text"][: offset - start], "offset": start}
    return replace(told, data=data, place=replace(told.place, offset=offset)) if start < offset else None


async def _cancel(run: Run) -> None:
    """Nobody will ever read it: the engine has better things to do, and its user need not pay for the rest."""
    for pause_s in CANCEL_PAUSES_S:
        await asyncio.sleep(pause_s)
        try:
            await rows.ask(lambda: cancelling.cancel(run))
        except problems.NotFound:
            return
        except (DatabaseError, InterfaceError) as error:
            logger.warning("run.not_cancelled run=%s error=%s", run.pk, type(error).__name__)
        else:
            logger.info("run.hung_up run=%s", run.pk)
            return
