"""What a credential has left, in the headers of every answer to it.

RateLimit-Policy and RateLimit, as draft-ietf-httpapi-ratelimit-headers-10 has them: a policy for the credential's
requests, and one for the tokens of its user. While Redis is away nothing is counted, and they say so: all is left.
"""

from __future__ import annotations

from math import ceil

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.deprecation import MiddlewareMixin

from chat import accounting, throttles
from chat.api.authentication import Credential
from chat.openai.errors import PREFIX

# Among what belongs to one request, as WSGI's servers and applications name theirs.
CREDENTIAL = "palaver.credential"
HOUR_S = 3600


def note(request: HttpRequest, credential: Credential) -> None:
    """Have the answer say what this credential has left, whatever else it says."""
    request.META[CREDENTIAL] = credential


class AllowanceMiddleware(MiddlewareMixin):
    """Adds the headers behind everything else, so that what the request itself took is counted."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        """Two round trips to Redis, for answers to a credential only."""
        credential: Credential | None = request.META.get(CREDENTIAL)
        if credential:
            for name, value in _headers(request.path, credential).items():
                response.headers[name] = value
        return response


def _headers(path: str, credential: Credential) -> dict[str, str]:
    limits = credential.user.limits
    throttle = throttles.requests()
    left, level = throttle.left(credential.name), accounting.buckets().level(credential.user.pk, limits)
    fill_s = ceil(limits.budget_tokens * HOUR_S / limits.refill_tokens_per_hour)
    if path.startswith(PREFIX):
        of_requests = throttle.count, left.count, left.more_in_s
        of_tokens = limits.budget_tokens, level.tokens, ceil(level.full_in_s)
        return {**_as_openai("requests", *of_requests), **_as_openai("tokens", *of_tokens)}
    # A policy's unit is requests unless it says otherwise.
    return {
        "RateLimit-Policy": f'"requests";q={throttle.count};w={throttle.window_s}, '
        f'"tokens";q={limits.budget_tokens};w={fill_s};qu="tokens"',
        "RateLimit": f'"requests";r={left.count};t={left.more_in_s}, '
        f'"tokens";r={level.tokens};t={ceil(level.full_in_s)}',
    }


def _as_openai(unit: str, limit: int, left: int, full_in_s: int) -> dict[str, str]:
    """As OpenAI's clients know them; when all is there again is told as a duration."""
    return {
        f"x-ratelimit-limit-{unit}": str(limit),
        f"x-ratelimit-remaining-{unit}": str(left),
        f"x-ratelimit-reset-{unit}": f"{full_in_s}s",
    }
