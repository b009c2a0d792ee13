"""What the server would not do, in words for people: pages say them, by a form's answer or by their scripts."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

from django.utils.functional import Promise
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from chat import problems

MINUTE_S = 60
SOON_S = 90
KILOBYTE = 1024

# By code; those of the page's own come last. What stands in %(…)s, `api.js` and `of` below make of the problem's data.
SENTENCES: Mapping[str, Promise] = {
    "not_authenticated": _("You are signed out. Copy your message, sign in again, and send it then."),
    "csrf_failed": _("This page is out of date. Copy your message and load the page again."),
    "not_found": _("This chat is not there any more. Copy your message and begin a new chat."),
    "chat_busy": _("This chat is still being answered. Wait for the answer to end, or stop it."),
    "chat_full": _("This chat takes no more messages. What you wrote is kept, and goes with you into a new one."),
    "not_latest": _("Another message came after this one, so it cannot be tried again."),
    "too_many_runs": _(
        "Your plan allows so many answers at a time: %(limit)s. "
        "Wait for one in another chat to end, or stop it, and send again."
    ),
    "too_many_requests": _("That was too much at once. Try again %(wait)s."),
    "too_many_keys": _("You have as many keys as one may have: %(limit)s. Revoke one that is not used any more."),
    "too_many_new_keys": _("You make keys too fast. Try again %(wait)s."),
    "budget_exhausted": _(
        "This may take more than is left of your budget. There will be enough %(when)s. Try again then."
    ),
    "queue_full": _("Too many people wait for an answer just now. It may be worth another try %(wait)s."),
    "content_blank": _("Write something first."),
    "content_too_large": _("The message is too long: %(size)s KB, and %(most)s KB at most. Shorten it."),
    "body_too_large": _("The message is far too long. Shorten it."),
    "prompt_too_long": _(
        "With all that was said before, this is more than the model can read. Shorten it, or begin a new chat."
    ),
    "prompt_exceeds_budget": _(
        "With all that was said before, this is more than your whole budget. Shorten it, or begin a new chat."
    ),
    "message_exceeds_budget": _("This is more than your whole budget. Shorten it."),
    "message_too_long": _("This is more than the model can read. Shorten it."),
    "model_unknown": _("This model is not open to you any more. Load the page again and pick another."),
    "model_unusable": _("This model cannot answer now. Pick another, or try again later."),
    "title_blank": _("Write a title first."),
    "title_too_long": _("A title has at most 200 characters."),
    "title_invalid": _("A title is one line of text, without control characters."),
    "content_has_nul": _("The message holds a NUL character, which cannot be stored. Take it out."),
    "content_not_unicode": _("The message holds half a character, which cannot be stored. Take it out."),
    "idempotency_in_flight": _("This was sent a moment ago and is still being taken. Look at the chat again %(wait)s."),
    "stopping": _("This server is being restarted. Nothing was lost: try again %(wait)s."),
    "database_unavailable": _("Our database does not answer just now. Nothing was lost: try again %(wait)s."),
    "streams_unavailable": _("We cannot serve this just now. Nothing was lost: try again %(wait)s."),
    "internal_error": _("Something went wrong on our side. Your message is kept: try again."),
    "offline": _("There is no connection to the server. Nothing was lost: try again in a moment."),
    "timeout": _("The server does not answer. Nothing was lost: look at your connection, and try again."),
}


def of(problem: problems.Problem) -> str:
    """The sentence for a problem; for one that has none, what programs are told."""
    if isinstance(problem, problems.ChatFull):  # a form's text goes into no new chat
        return full(problem.data["limit"])
    sentence = SENTENCES.get(problem.code)
    if sentence is None:
        return problem.detail
    wait = _wait(problem.headers.get("Retry-After"))
    told = {"size": _kilobytes(problem, "size_bytes"), "most": _kilobytes(problem, "max_bytes")}
    return str(sentence) % {**problem.data, **told, "wait": wait, "when": wait}


def full(limit: int) -> str:
    """Why a chat takes no more questions, and the way on."""
    return ngettext(
        "This chat has its %(limit)s question. Begin a new one: it goes on from this chat's summary.",
        "This chat has its %(limit)s questions. Begin a new one: it goes on from this chat's summary.",
        limit,
    ) % {"limit": limit}


def _kilobytes(problem: problems.Problem, name: str) -> int:
    return ceil(int(problem.data.get(name, 0)) / KILOBYTE)


def _wait(seconds: str | None) -> str:
    if not seconds:
        return gettext("in a moment")
    count = int(seconds)
    if count < SOON_S:
        return ngettext("in %(count)s second", "in %(count)s seconds", count) % {"count": count}
    count = ceil(count / MINUTE_S)
    return ngettext("in %(count)s minute", "in %(count)s minutes", count) % {"count": count}
