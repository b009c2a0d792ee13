"""By what requests are let in."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from django.conf import settings

from chat.api.schema.shapes import Schema
from chat.models import Scope

KEY, SESSION, CSRF = "key", "session", "csrf"
SCHEMES: Mapping[str, Schema] = {
    KEY: {"type": "http", "scheme": "bearer", "description": "An API key, of the page `/keys` or `POST /api/keys`."},
    SESSION: {
        "type": "apiKey",
        "in": "cookie",
        "name": settings.SESSION_COOKIE_NAME,
        "description": "A signed-in browser.",
    },
    CSRF: {
        "type": "apiKey",
        "in": "header",
        "name": "X-CSRFToken",
        "description": f"The value of the cookie `{settings.CSRF_COOKIE_NAME}`: a session changes nothing without it.",
    },
}


def requirements(scopes: Collection[Scope], method: str) -> list[Schema]:
    """One of these lets in; nothing is required where there are no scopes."""
    if not scopes:
        return []
    by_session: Schema = {SESSION: []} if method == "GET" else {SESSION: [], CSRF: []}
    return [{KEY: [str(scope) for scope in scopes]}, by_session]
