"""The description as a whole."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from threading import Lock
from typing import Any

from django.urls import URLPattern
from drf_spectacular.generators import SchemaGenerator
from rest_framework.request import Request
from rest_framework.response import Response

from chat.api.base import View
from chat.api.schema.operations import OPERATIONS

PREFIX = "/api/"
_making = Lock()
Endpoint = tuple[str, str, str, Callable[..., Any]]


class Stream(View):
    """Stands in the description for a view of ours that is not DRF's."""

    def get(self, request: Request) -> Response:
        """Never called."""
        raise NotImplementedError


def below_api(endpoints: list[Endpoint]) -> list[Endpoint]:
    """drf-spectacular's hook: what is below /api/, and with it the streams, which it does not find."""
    ours = [endpoint for endpoint in endpoints if endpoint[0].startswith(PREFIX)]
    order = list(OPERATIONS)
    return sorted([*ours, *_streams()], key=lambda endpoint: order.index((endpoint[2], endpoint[0])))


def document() -> dict[str, Any]:
    """The OpenAPI document, the same for everybody. Not to be changed."""
    with _making:  # drf-spectacular makes one at a time, and the first two who ask may come together
        return _made()


@cache
def _made() -> dict[str, Any]:
    made: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    return made


@cache
def rendered() -> bytes:
    """The document as JSON."""
    return json.dumps(document(), ensure_ascii=False, separators=(",", ":")).encode()


def _streams() -> list[Endpoint]:
    from chat.api.urls import urlpatterns  # which has the view of this description

    stand_in = Stream.as_view()
    routes = [
        f"{PREFIX}{entry.pattern}"
        for entry in urlpatterns
        if isinstance(entry, URLPattern) and entry.name and not hasattr(entry.callback, "cls")
    ]
    return [(_template(route), route, "GET", stand_in) for route in routes]


def _template(route: str) -> str:
    return route.replace("<uuid:", "{").replace(">", "}")
