"""`/v1/chat/completions`: a whole conversation in, one answer out; the connection is the request."""

from __future__ import annotations

from functools import partial
from typing import cast

from django.core.handlers.asgi import ASGIRequest
from django.http.response import HttpResponseBase
from rest_framework.request import Request

from chat import programs
from chat.models import User
from chat.openai import conversation, fields
from chat.openai.base import OpenAIView
from chat.openai.body import MOST_TOKENS, TEMPERATURES, TOP_PS, Body
from chat.openai.chunks import Completion
from chat.openai.connection import Cancels, Connection
from chat.problems import FieldInvalid
from chat.programs import Asked
from chat.streaming.entrance import Deferred, EventStream
from chat.wishes import Wishes
from scheduler.auto import Pick

MOST_STOPS = 4
MOST_STOP_CHARS = 256
SEEDS = -(2**63), 2**63 - 1
CAPS = "max_completion_tokens", "max_tokens"


class Completions(OpenAIView):
    """`/v1/chat/completions`"""

    def post(self, request: Request) -> HttpResponseBase:
        """Answer, at once piece by piece or in the end as a whole."""
        body, user = Body(request.data, fields.COMPLETION), cast(User, request.user)
        is_stream, with_usage = body.flag("stream"), body.nested("stream_options").get("include_usage") is True
        run = programs.ask(user, _asked(body, user))
        completion = Completion.of(run, with_usage=with_usage)
        asked = cast(ASGIRequest, request._request)
        connection = Connection(asked, user.pk, run, Cancels.WHEN_LEFT)
        if is_stream:
            return EventStream(asked, partial(connection.streamed, completion.chunks))
        return Deferred(asked, partial(connection.awaited, completion.whole))


def _asked(body: Body, user: User) -> Asked:
    system, said = conversation.read(body.get("messages"), "messages")
    model = body.text("model")
    if not model:
        raise FieldInvalid("model_missing", "Name a model: GET /v1/models has those there are.", "model")
    caps = [cap for name in CAPS if (cap := body.whole(name, 1, MOST_TOKENS))]
    pick = Pick.of(user.tier.slug, model)
    return Asked(
        said,
        pick.model,
        _wishes(body, system),
        max_output_tokens=min(caps, default=None),
        is_kept=body.flag("store"),
        rules=pick.rules,
    )


def _wishes(body: Body, system: str | None) -> Wishes:
    """What a request asks for beyond the model's own settings."""
    return Wishes(
        system=system,
        temperature=body.number("temperature", *TEMPERATURES),
        top_p=body.number("top_p", *TOP_PS),
        presence_penalty=body.number("presence_penalty", -2, 2),
        frequency_penalty=body.number("frequency_penalty", -2, 2),
        seed=body.whole("seed", *SEEDS),
        stop=body.strings("stop", MOST_STOPS, MOST_STOP_CHARS),
    )
