"""The ASGI application: pages and API as Django has it, streams without a thread each, and a hub while it lives."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, ExitStack
from typing import Any

import django
from django.core.handlers.asgi import ASGIHandler

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "chatsite.settings")
django.setup(set_prefix=False)

from chat import problems  # noqa: E402  (after the apps are set up)
from chat.streaming.service import Streams, open_streams  # noqa: E402

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
Handle = Callable[[Scope, Receive, Send], Awaitable[object]]

STREAM_PATH = re.compile(r"/api/(runs/[^/]+/stream|events)$")


class Application(ASGIHandler):
    """Django's handler, but for streams and the lifespan. One for each server process."""

    def __init__(self) -> None:
        super().__init__()
        self._streams: Streams | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, or the process's lifespan."""
        if scope["type"] == "lifespan":
            await self._live(scope, receive, send)
        elif scope["type"] == "http" and STREAM_PATH.search(scope["path"]):
            # Django gives each request a thread until its response ends. An open stream needs none: the short
            # synchronous work of all openings shares one. What it holds is given back however it ends.
            with ExitStack() as scope["ended"]:
                await _or_refused(self.handle, scope, receive, send)
        else:
            await _or_refused(super().__call__, scope, receive, send)

    def end_streams(self) -> None:
        """End every open stream now; the readers come back, to another process, from where they were."""
        if self._streams:
            self._streams.close()

    async def _live(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        async with AsyncExitStack() as stack:
            self._streams = await stack.enter_async_context(open_streams())
            scope["state"]["streams"] = self._streams
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})


async def _or_refused(handle: Handle, scope: Scope, receive: Receive, send: Send) -> None:
    """Serve a request; one that is not answered when the patience with a process that stops is over is told so."""
    has_begun = False

    async def noting(message: Mapping[str, Any]) -> None:
        nonlocal has_begun
        has_begun = True
        await send(message)

    try:
        await handle(scope, receive, _heeding_cancellation(noting))
    except asyncio.CancelledError:
        if has_begun:
            raise
        refusal = problems.response(problems.Stopping())
        headers = [(name.lower().encode(), value.encode()) for name, value in refusal.items()]
        await send({"type": "http.response.start", "status": refusal.status_code, "headers": headers})
        await send({"type": "http.response.body", "body": refusal.content})


def _heeding_cancellation(send: Send) -> Send:
    """Django cancels the task of a request whose client has left, and redis-py can swallow that, amid a read.

    Seen in one of ten openings that were left at once: each would then stream to nobody until its run ends.
    """

    async def heeding(message: Mapping[str, Any]) -> None:
        if (task := asyncio.current_task()) and task.cancelling():
            raise asyncio.CancelledError
        await send(message)

    return heeding


application = Application()
