"""The ASGI application: pages and API as Django has it, streams without a thread each, and a hub while it lives."""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any

import django
from django.core.handlers.asgi import ASGIHandler

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "chatsite.settings")
django.setup(set_prefix=False)

from chat.streaming.service import Streams, open_streams  # noqa: E402  (after the apps are set up)

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]

STREAM_PATH = re.compile(r"/api/runs/[^/]+/stream$")


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
            # synchronous work of all openings shares one.
            await self.handle(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)

    def end_streams(self) -> None:
        """End every open stream now; the readers come back, to another process, from where they were."""
        if self._streams:
            self._streams.hub.close()

    async def _live(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        async with AsyncExitStack() as stack:
            self._streams = await stack.enter_async_context(open_streams())
            scope["state"]["streams"] = self._streams
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})


application = Application()
