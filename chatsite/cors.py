"""What scripts of other sites may send to the API, and read of its answers. They bear a key: no cookie counts."""

from __future__ import annotations

PATHS = r"^/(api|v1)/"
METHODS = ("DELETE", "GET", "PATCH", "POST")
# What OpenAI's client for browsers says of itself with each request; browsers ask for every one by name.
OF_OPENAI = (
    "openai-organization",
    "openai-project",
    "user-agent",
    "x-stainless-arch",
    "x-stainless-async",
    "x-stainless-custom-poll-interval",
    "x-stainless-helper-method",
    "x-stainless-lang",
    "x-stainless-os",
    "x-stainless-package-version",
    "x-stainless-poll-helper",
    "x-stainless-retry-count",
    "x-stainless-runtime",
    "x-stainless-runtime-version",
    "x-stainless-timeout",
)
ASKED = ("accept", "authorization", "content-type", "idempotency-key", "if-none-match", "last-event-id", *OF_OPENAI)
TOLD = (
    "ETag",
    "Idempotent-Replayed",
    "RateLimit",
    "RateLimit-Policy",
    "Retry-After",
    "X-RateLimit-Limit-Requests",
    "X-RateLimit-Limit-Tokens",
    "X-RateLimit-Remaining-Requests",
    "X-RateLimit-Remaining-Tokens",
    "X-RateLimit-Reset-Requests",
    "X-RateLimit-Reset-Tokens",
    "X-Request-Id",
    "X-Should-Retry",
)
