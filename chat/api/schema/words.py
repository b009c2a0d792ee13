"""What the description says at length."""

from __future__ import annotations

from enum import StrEnum

ABOUT = """\
Chats, questions and answers of whoever asks; what belongs to somebody else is not found.

A credential is an API key as `Authorization: Bearer <key>`, or the session of a signed-in browser, whose changes also
need the CSRF token. Every answer to a credential says in `RateLimit` what it has left.

What is refused is `application/problem+json` with a stable `code`. Whatever the operation, a method that an address
does not take is 405 `method_not_allowed`, any other address below `/api/` is 404 `not_found`, and a bug of ours is 500
`internal_error`. A browser's HEAD is answered as its GET where that is no stream. Keys of a body that are not known are
ignored, and answers are JSON whatever `Accept` says.
"""
EVENTS_OF_A_RUN = """\
Server-sent events. `started`, `delta` (`{text, offset}`), `reset` (`{offset}`: the text from there on is void), and
last `done`, `cancelled` or `failed`, each with an id to go on from; `queued` (`{position, eta_s, tier}`) without one.
A comment comes every 15 s. The deltas joined together are the stored message.
"""
EVENTS_OF_A_USER = """\
Server-sent events: `chat`, `chat_deleted`, `run_begun`, `run_ended`, `missed`, `signed_out`, and `hb` after every 15 s
without another. Each is a hint, told once: fetch the list on connecting, and again on `missed`. Events of the runs that
`run` names come in between, with their ids. With one such run `Last-Event-ID` is of that.
"""


class TAGS(StrEnum):
    """What operations are about, in the order of the page."""

    CHATS = "Chats"
    MESSAGES = "Messages"
    RUNS = "Runs"
    STREAMS = "Streams"
    ACCOUNT = "Account"
    KEYS = "Keys"
    DESCRIPTION = "Description"
