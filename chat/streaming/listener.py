"""One reader's way through a feed, alone or with the events of runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing
from uuid import UUID

from django.conf import settings

from chat.feed import SignedOut
from chat.streaming import frames
from chat.streaming.feeds import Note, SessionEnded, Told
from chat.streaming.inbox import Dropped, Inbox

# Unlike a comment it reaches a page's script, which can tell by it that a connection has died without a word.
BEAT = frames.unnumbered("hb", {})
SIGNED_OUT = frames.unnumbered(SignedOut.name, {})


async def listen(inbox: Inbox[Note], session: str) -> AsyncGenerator[bytes, None]:
    """SSE bytes of a feed until its session or its time is over; then its reader's credential is looked at again."""
    yield frames.HEARTBEAT  # some proxies hold the response's head back until there is a body
    ends_at = time.monotonic() + settings.FEED_S
    while (left_s := ends_at - time.monotonic()) > 0:
        match await _next(inbox, min(left_s, settings.HEARTBEAT_S)):
            case None:
                yield BEAT
            case Told(frame):
                yield frame
            case SessionEnded(ended):
                if ended == session:
                    yield SIGNED_OUT
                    return
            case Dropped():
                return


async def _next(inbox: Inbox[Note], patience_s: float) -> Note | Dropped | None:
    try:
        async with asyncio.timeout(patience_s):
            return await inbox.next()
    except TimeoutError:
        return None


async def of_run(run_id: UUID, events: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """A run's events as a feed brings them."""
    async with aclosing(events):
        async for told in events:
            yield frames.of_run(run_id, told)


async def merged(feed: AsyncGenerator[bytes, None], *runs: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """What all say, as it comes, until the feed ends; runs may end before."""
    async with AsyncExitStack() as open_sources:
        for source in (feed, *runs):
            await open_sources.enter_async_context(aclosing(source))
        waiting = {_coming(source): source for source in (feed, *runs)}
        try:
            while True:
                done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for coming in done:
                    source = waiting.pop(coming)
                    if (told := coming.result()) is not None:
                        waiting[_coming(source)] = source
                        yield told
                    elif source is feed:
                        return
        finally:
            for coming in waiting:
                coming.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)


def _coming(source: AsyncGenerator[bytes, None]) -> asyncio.Task[bytes | None]:
    async def next_or_none() -> bytes | None:
        return await anext(source, None)

    return asyncio.create_task(next_or_none())
