"""What Postgres does not store is refused at the door."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import iscoroutinefunction

from django.conf import settings
from django.core.exceptions import SuspiciousOperation
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import resolve
from django.utils.decorators import sync_and_async_middleware

Answer = HttpResponseBase | Awaitable[HttpResponseBase]
# Ids are UUIDs there, keys that are not known are ignored, and each that is known has a code of its own.
LOOKS_ITSELF = ("/api/", "/v1/")


@sync_and_async_middleware
def refuse_nul(get_response: Callable[[HttpRequest], Answer]) -> Callable[[HttpRequest], Answer]:
    """Answers 400 for a NUL in an address, its query or a session's cookie, which the database would be asked for."""

    # Twins, since middleware of one kind costs each request of the other a change of threads.
    def refuse(request: HttpRequest) -> Answer:
        _look(request)
        return get_response(request)

    async def refuse_async(request: HttpRequest) -> HttpResponseBase:
        _look(request)
        answer: HttpResponseBase = await get_response(request)  # type: ignore[misc]  # it is of our kind
        return answer

    return refuse_async if iscoroutinefunction(get_response) else refuse


def _look(request: HttpRequest) -> None:
    """Raises `SuspiciousOperation`, or `Http404` when there is no such address anyway."""
    # Quoted, a cookie may spell it \\000.
    if "\0" in request.COOKIES.get(settings.SESSION_COOKIE_NAME, ""):
        raise SuspiciousOperation("The session's cookie has a NUL character.")
    has_nul = "\0" in request.path_info or "%00" in request.META["QUERY_STRING"]
    if has_nul and not request.path_info.startswith(LOOKS_ITSELF):
        resolve(request.path_info)
        raise SuspiciousOperation("The address has a NUL character.")
