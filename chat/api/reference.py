"""The API's description, for programs and for people; anybody may read it, since it holds no secret."""

from __future__ import annotations

from django.http import HttpResponse
from django.shortcuts import render
from rest_framework.request import Request

from chat.api.base import View
from chat.api.schema import generation, page
from chat.api.schema.operation import OPENAPI


class OpenView(View):
    """Of a view that asks nobody who they are."""

    authentication_classes = ()
    permission_classes = ()
    throttle_classes = ()


class Schema(OpenView):
    """`/api/schema`"""

    def get(self, request: Request) -> HttpResponse:  # noqa: ARG002  # as DRF calls it
        """An OpenAPI 3.1 document."""
        return HttpResponse(generation.rendered(), content_type=OPENAPI)


class Docs(OpenView):
    """`/api/docs`"""

    def get(self, request: Request) -> HttpResponse:
        """The same as a page."""
        return render(request._request, "api/docs.html", {"about": page.about(), "sections": page.sections()})
