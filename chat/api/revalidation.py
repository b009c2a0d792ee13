"""Answers that a client may keep, when it asks each time whether they are still so."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, HttpResponseNotModified
from django.utils.cache import add_never_cache_headers, patch_cache_control, patch_vary_headers, set_response_etag
from django.utils.http import parse_etags
from rest_framework.response import Response

KEPT = ("Cache-Control", "ETag", "Expires", "Vary")  # of RFC 9110, 15.4.5, what an answer here has


class NotModified(HttpResponseNotModified):
    """As `get_conditional_response` makes it, which would answer other preconditions with a 412 that is no problem.

    Nobody gives it a length: by RFC 9110, 8.6, it could only be that of the answer that it stands for.
    """

    def __init__(self, answer: HttpResponse) -> None:
        super().__init__(headers={name: answer.headers[name] for name in KEPT if name in answer.headers})

    def has_header(self, header: str) -> bool:
        """Says so of a length, or CommonMiddleware would set 0."""
        return header.lower() == "content-length" or super().has_header(header)


def revalidated(request: HttpRequest, answer: Response, *, may_be_kept: bool) -> HttpResponse:
    """The answer with an ETag, or 304 for who has it: one that may not be kept is compared all the same."""
    set_response_etag(answer.render())
    if may_be_kept:
        patch_cache_control(answer, private=True, no_cache=True)
        patch_vary_headers(answer, ("Authorization", "Cookie"))
    else:
        add_never_cache_headers(answer)
    return NotModified(answer) if _is_had(answer.headers["ETag"], request) else answer


def _is_had(etag: str, request: HttpRequest) -> bool:
    """Weak comparison, since a proxy that compresses makes a strong tag a weak one."""
    had = parse_etags(request.headers.get("If-None-Match", ""))
    return had == ["*"] or etag in (tag.removeprefix("W/") for tag in had)
