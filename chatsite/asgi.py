"""The ASGI application: each request in a thread for as long as it takes to answer, streams on the event loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack, aclosing, closing
from contextvars import copy_context
from typing import IO, Any, cast

import django
from django.core import signals
from django.core.exceptions import RequestAborted
from django.core.handlers.asgi import ASGIHandler, get_script_prefix
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.urls import set_script_prefix

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "chatsite.settings")
django.setup(set_prefix=False)

from chat import problems  # noqa: E402  (after the apps are set up)
from chat.api.errors import refusal  # noqa: E402
from chat.streaming.entrance import Deferred  # noqa: E402
from chat.streaming.seats import Seats  # noqa: E402
from chat.streaming.service import Streams, open_streams  # noqa: E402
from chatsite.health import Health  # noqa: E402

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
Handle = Callable[[Scope, Receive, Send], Awaitable[object]]

# Some more than there are connections to the database, so that who waits for one keeps nobody from a static file. Not
# many more: they share one interpreter lock.
THREADS = 12
CANCEL_AGAIN_S = 0.5


class Application(ASGIHandler):
    """Django's handler, with one change of threads a request. One for each server process.

    Under ASGI Django changes threads for each synchronous middleware, there and back, for the view and for each signal:
    26 times for a request of ours, which was half of what it cost. Here all of that is one call in one thread, as under
    WSGI, and the response is sent from the event loop. A stream's view only says how the stream is opened, so that an
    open stream has no thread.
    """

    def __init__(self) -> None:
        super().__init__()
        self._threads = ThreadPoolExecutor(THREADS, "request")  # which makes one only when none is idle
        # Of readers, who come back from where they were, and of clients whose connection is the request.
        self._streams: Streams | None = None
        self._requests: Streams | None = None
        self._health = Health()

    def load_middleware(self, is_async: bool = False) -> None:  # noqa: ARG002  # as it is called
        """The synchronous kind of each, whatever is asked for."""
        super().load_middleware(is_async=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, or the process's lifespan."""
        if scope["type"] == "lifespan":
            await self._live(scope, receive, send)
        else:
            await _or_refused(self.handle, scope, receive, send)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if probe := await self._health.answer(scope["path"], scope["method"]):
            await self.send_response(probe, send)
            return
        try:
            body = await self.read_body(receive)
        except RequestAborted:
            return
        with closing(body):
            loop, context = asyncio.get_running_loop(), copy_context()
            response = await loop.run_in_executor(self._threads, context.run, self._answer, scope, body)
        if isinstance(response, Deferred):
            await _until_left(self._go_on(response, send), receive)
        else:
            await self.send_response(response, send)

    def _answer(self, scope: Scope, body: IO[bytes]) -> HttpResponseBase:
        """All that Django does for a request, in a thread. What it holds is given back."""
        set_script_prefix(get_script_prefix(scope))
        signals.request_started.send(sender=type(self), scope=scope)
        request, refusal = self.create_request(scope, body)
        response = self.get_response(request) if request else cast(HttpResponseBase, refusal)
        if response.streaming and not isinstance(response, Deferred):
            response = _whole(response)
        response.close()
        return response

    async def _go_on(self, response: Deferred, send: Send) -> None:
        """Send events as they come; what is refused until the first is an answer like any other."""
        with ExitStack() as ended:
            try:
                opened = await response.opening(ended)
            except Exception as error:
                await self.send_response(response.refused(error), send)
                return
            if isinstance(opened, HttpResponse):
                await self.send_response(response.become(opened), send)
                return
            async with aclosing(opened):
                await send(_head(response))
                async for piece in opened:
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body"})

    def end_streams(self) -> None:
        """End the streams of all who come back, now: to another process, from where they were."""
        self._health.is_stopping = True
        if self._streams:
            self._streams.close()

    def end_requests(self) -> None:
        """Tell whoever still waits for an answer over the connection that asked for it to ask again."""
        if self._requests:
            self._requests.close()

    async def _live(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        async with AsyncExitStack() as stack:
            seats = Seats()
            self._streams = await stack.enter_async_context(open_streams(seats))
            self._requests = await stack.enter_async_context(open_streams(seats))
            scope["state"] |= {"streams": self._streams, "requests": self._requests}
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})


def _whole(response: Any) -> HttpResponse:
    """A file, which is read here: the event loop must not wait for a disk. Static files are small."""
    whole = HttpResponse(b"".join(response.streaming_content), status=response.status_code)
    whole.headers = response.headers
    response.close()
    return whole


def _head(response: HttpResponseBase) -> Mapping[str, Any]:
    headers = [(name.lower().encode("ascii"), value.encode("latin1")) for name, value in response.items()]
    cookies = [(b"set-cookie", cookie.OutputString().encode("ascii")) for cookie in response.cookies.values()]
    return {"type": "http.response.start", "status": response.status_code, "headers": [*headers, *cookies]}


async def _until_left(serving: Coroutine[Any, Any, None], receive: Receive) -> None:
    """Serve until it is done or the client has hung up, of which nobody hears who only sends."""
    tasks = [asyncio.create_task(serving), asyncio.create_task(_hung_up(receive))]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        # Until they end: redis-py can swallow a cancellation, amid a read. What then waits for a run's end would wait.
        pending = set(tasks)
        while pending:
            for task in pending:
                task.cancel()
            _, pending = await asyncio.wait(pending, timeout=CANCEL_AGAIN_S)
    if not tasks[0].cancelled():
        tasks[0].result()


async def _hung_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


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
        refused = refusal(scope["path"], problems.Stopping())
        await send(_head(refused))
        await send({"type": "http.response.body", "body": refused.content})


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
