"""What may be asked of the product: every address, by every method that it takes, and what that needs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.urls import URLPattern, URLResolver, get_resolver

from tests.stack.stack import MODEL

POSTGRES, STREAMS = "postgres", "streams"
DATABASE_ONLY = frozenset({POSTGRES})
NOTHING = frozenset[str]()
ADMIN = "/admin/"
ARGUMENT = re.compile(r"<[^>]+>")
A_PASSWORD = "correct horse battery"
SHORT = '[[script {"text": "Yes."}]]'


@dataclass(frozen=True, slots=True)
class Ask:
    """One request, and how it is answered while all is well."""

    method: str
    route: str  # as the URL map has it, with a query or the rest of a path where that takes one
    status: int | None  # None: whatever it is when all is well
    of: str = ""  # which of a scene's things the route's argument is
    by: str = "key"  # or by a session, or by nobody
    body: Mapping[str, Any] | None = None
    is_keyed: bool = False
    needs: frozenset[str] = DATABASE_ONLY

    @property
    def name(self) -> str:
        """What tells it from others."""
        keyed = ", once" if self.is_keyed else ""
        return f"{self.method} {self.route} by {self.by}{f' of {self.of}' if self.of else ''}{keyed}"

    @property
    def is_api(self) -> bool:
        """Whether a program asks."""
        return self.route.startswith(("/api/", "/v1/", "/metrics"))

    def path(self, things: Mapping[str, str]) -> str:
        """Its address."""
        return ARGUMENT.sub(lambda _: things[self.of], self.route)


CHAT, MESSAGES = "/api/chats/<uuid:chat_id>", "/api/chats/<uuid:chat_id>/messages"
RUN, STREAM = "/api/runs/<uuid:run_id>", "/api/runs/<uuid:run_id>/stream"
CANCEL, RETRY = "/api/runs/<uuid:run_id>/cancel", "/api/runs/<uuid:run_id>/retry"
KEY = "/api/keys/<uuid:key_id>"
REVOKE = "/keys/<uuid:key_id>/revoke"
PAGE = "/chats/<uuid:chat_id>"
CONTINUE = f"{PAGE}/continue"
FORMS = tuple(f"{PAGE}/{act}" for act in ("ask", "stop", "retry"))
LIVE = frozenset({POSTGRES, STREAMS})

API = (
    Ask("GET", "/api/chats", 200),
    Ask("GET", "/api/chats", 200, by="session"),
    Ask("POST", "/api/chats", 201, body={}),
    Ask("POST", "/api/chats", 201, body={}, by="session"),
    Ask("POST", "/api/chats", 201, body={}, is_keyed=True),
    Ask("GET", CHAT, 200, of="chat"),
    Ask("PATCH", CHAT, 200, of="chat", body={"title": "Renamed"}),
    Ask("DELETE", CHAT, 204, of="chat to delete"),
    Ask("GET", MESSAGES, 200, of="chat"),
    Ask("POST", MESSAGES, 202, of="chat to ask in", body={"content": SHORT}),
    Ask("POST", MESSAGES, 202, of="chat to ask in once", body={"content": SHORT}, is_keyed=True),
    Ask("GET", "/api/messages/<uuid:message_id>", 200, of="message"),
    Ask("GET", RUN, 200, of="ended run"),
    Ask("GET", STREAM, 200, of="ended run"),
    Ask("GET", STREAM, 200, of="live run", needs=LIVE),
    Ask("POST", CANCEL, 200, of="ended run", body={}),
    Ask("POST", CANCEL, 202, of="run to cancel", body={}),
    Ask("POST", RETRY, 202, of="run to retry", body={}),
    Ask("POST", RETRY, 202, of="run to retry once", body={}, is_keyed=True),
    Ask("GET", "/api/events", 200),
    Ask("GET", "/api/events", 200, by="session"),
    Ask("GET", "/api/events?run=<live>", 200, of="live run", needs=LIVE),
    Ask("GET", "/api/events?run=<live>&run=<live>:", 200, of="live run", needs=LIVE),
    Ask("GET", "/api/usage", 200),
    Ask("GET", "/api/models", 200),
    Ask("GET", "/api/keys", 200, by="session"),
    Ask("POST", "/api/keys", 201, by="session", body={"name": "Laptop"}),
    Ask("GET", KEY, 200, of="kept key", by="session"),
    Ask("DELETE", KEY, 204, of="key to revoke", by="session"),
    Ask("GET", "/api/schema", 200, by="nobody", needs=NOTHING),
    Ask("GET", "/api/docs", 200, by="nobody", needs=NOTHING),
    Ask("GET", "/api/nothing", 404, needs=NOTHING),
)
COMPLETIONS, RESPONSES = "/v1/chat/completions", "/v1/responses"
RESPONSE = f"{RESPONSES}/<response:response_id>"
ASKED = {"model": MODEL, "messages": [{"role": "user", "content": SHORT}]}
OPENAI = (
    Ask("GET", "/v1/models", 200),
    Ask("GET", "/v1/models/<str:slug>", 200, of="model"),
    # As a stream: what is answered as a whole waits, for a worker and all that one needs.
    Ask("POST", COMPLETIONS, 200, body={**ASKED, "stream": True}, needs=LIVE),
    Ask("POST", RESPONSES, 200, body={"model": MODEL, "input": SHORT, "background": True}),
    Ask("GET", RESPONSE, 200, of="response"),
    Ask("GET", f"{RESPONSE}?stream=true", 200, of="response"),
    Ask("POST", f"{RESPONSE}/cancel", 200, of="response"),
    Ask("GET", "/v1/nothing", 404, needs=NOTHING),
)
SIGNING_IN = {"username": "visitor", "password": A_PASSWORD}
SIGN_UP = Ask(
    "POST", "/sign-up", 302, by="nobody", body={"username": "<name>", "password1": A_PASSWORD, "password2": A_PASSWORD}
)
PAGES = (
    Ask("GET", "/", 200, by="session"),
    Ask("GET", "/", 302, by="nobody", needs=NOTHING),
    Ask("GET", PAGE, 200, of="chat", by="session"),
    Ask("GET", f"{PAGE}/export.md", 200, of="chat", by="session"),
    Ask("GET", f"{PAGE}/export.json", 200, of="chat", by="session"),
    Ask("GET", CONTINUE, 405, of="chat", by="nobody", needs=NOTHING),
    Ask("POST", CONTINUE, 302, of="chat", by="session", body={}),
    Ask("GET", "/ask", 302, by="nobody", needs=NOTHING),
    Ask("POST", "/ask", 302, by="session", body={"content": SHORT}),
    *(Ask("GET", form, 302, of="chat", by="nobody", needs=NOTHING) for form in FORMS),
    Ask("POST", f"{PAGE}/ask", 302, of="chat to ask in by form", by="session", body={"content": SHORT}),
    Ask("POST", f"{PAGE}/stop", 302, of="chat", by="session", body={}),
    Ask("POST", f"{PAGE}/retry", 302, of="chat", by="session", body={"run": "none"}),
    Ask("GET", "/usage", 200, by="session"),
    Ask("GET", "/keys", 200, by="session"),
    Ask("POST", "/keys", 400, by="session", body={"name": ""}),
    Ask("GET", REVOKE, 302, of="kept key", by="session"),
    Ask("POST", REVOKE, 302, of="key to revoke by form", by="session", body={}),
    Ask("GET", "/words.js", 404, by="nobody", needs=NOTHING),
    Ask("GET", "/language", 302, by="nobody", needs=NOTHING),
    Ask("POST", "/language", 302, by="nobody", body={"language": "fa"}, needs=NOTHING),
    Ask("GET", "/metrics", None, by="session"),
    Ask("GET", "/sign-in", 200, by="nobody", needs=NOTHING),
    Ask("GET", "/sign-in", 302, by="session"),
    Ask("POST", "/sign-in", 302, by="nobody", body=SIGNING_IN),
    Ask("GET", "/sign-up", 200, by="nobody", needs=NOTHING),
    SIGN_UP,
    Ask("POST", "/sign-out", 302, by="leaving session", body={}),
    Ask("GET", "/static/chat/icon.svg", 200, by="nobody", needs=NOTHING),
    Ask("GET", "/nothing", 404, by="nobody", needs=NOTHING),
)
SIGN_IN_OF_OPERATORS = (
    Ask("GET", "/admin/login/", 200, by="nobody", needs=NOTHING),
    Ask("POST", "/admin/login/", 302, by="nobody", body={**SIGNING_IN, "next": ADMIN}),
)


# What Django's forms take for a POST; what would end the session that others need; what knows no route of its own.
NOT_ASKED = {
    *(("PUT", "/sign-in"), ("PUT", "/sign-up"), ("GET", "/admin/logout/"), ("GET", "/api/"), ("GET", "/v1/")),
    *(("GET", f"/admin/{rest}") for rest in (r"^(?P<app_label>scheduler|auditlog|chat|auth)/$", r"(?P<url>.*)$")),
}


def routes(resolver: URLResolver | None = None, prefix: str = "/") -> Iterator[tuple[str, URLPattern]]:
    """The URL map's entries, with the whole route of each."""
    for entry in (resolver or get_resolver()).url_patterns:
        route = f"{prefix}{entry.pattern}"
        if isinstance(entry, URLResolver):
            yield from routes(entry, route)
        else:
            yield route, entry


def of_operators() -> Sequence[Ask]:
    """Every page of the admin, whatever models it has."""
    shown = {route for route, _ in routes() if route.startswith(ADMIN)} - {"/admin/login/", "/admin/logout/"}
    plain = sorted(route for route in shown if "(" not in route)
    return [*SIGN_IN_OF_OPERATORS, *(Ask("GET", route, None, of="ended run", by="session") for route in plain)]


def served() -> set[tuple[str, str]]:
    """Which methods which routes take."""
    return {(method, route) for route, entry in routes() for method in _methods(entry)}


def unasked() -> set[tuple[str, str]]:
    """Which of them the tables leave out."""
    return served() - {(ask.method, ask.route) for ask in (*API, *OPENAI, *PAGES, *of_operators())} - NOT_ASKED


def _methods(entry: URLPattern) -> set[str]:
    """What a view of ours takes; of functions, and in the admin, only GET is known."""
    view: Any = entry.callback
    of_class = getattr(view, "view_class", None) or getattr(view, "cls", None)
    if of_class is None or not of_class.__module__.startswith("chat."):
        return {"GET"}
    return {name.upper() for name in of_class.http_method_names if hasattr(of_class, name)} - {"HEAD", "OPTIONS"}
