"""One reader's way through a feed, alone or with a run's events."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing

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


async def merged(feed: AsyncGenerator[bytes, None], run: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """What both say, as it comes, until the feed ends; the run may end before."""
    said: asyncio.Queue[bytes | Exception | None] = asyncio.Queue(1)

    async def pass_on(source: AsyncGenerator[bytes, None]) -> None:
        task = asyncio.current_task()
        try:
            async with aclosing(source):
                async for told in source:
                    if task and task.cancelling():  # which redis-py can swallow, amid a read
                        break
                    await said.put(told)
        except Exception as failure:
            await said.put(failure)
        else:
            if source is feed:
                await said.put(None)

    # A task each, for as long as it speaks: one for each event took a sixth of what an event costs (measured).
    speaking = [asyncio.create_task(pass_on(source)) for source in (feed, run)]
    try:
        while (told := await said.get()) is not None:
            if isinstance(told, Exception):
                raise told
            yield told
    finally:
        for task in speaking:
            task.cancel()
        await asyncio.gather(*speaking, return_exceptions=True)
