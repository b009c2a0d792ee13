"""What every view under /v1/ is."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse

from chat import problems
from chat.api.authentication import ApiKeyAuthentication
from chat.api.base import View
from chat.openai import errors


class OpenAIView(View):
    """One for programs alone: a browser's session opens nothing here."""

    authentication_classes = (ApiKeyAuthentication,)


def not_found(request: HttpRequest) -> HttpResponse:
    """Any other address under /v1/."""
    return errors.response(
        request.path, problems.NotFound("There is no such address. See docs/openai.md for those there are.")
    )
