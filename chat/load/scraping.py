"""`/metrics`, for a monitoring system with the token of the settings, and for operators who are signed in."""

from __future__ import annotations

from collections.abc import Callable

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils.crypto import constant_time_compare
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from chat import problems
from chat.connections import given_back
from chat.load.metrics import LoadCollector
from chat.load.page import PERMISSIONS


@never_cache
@given_back()
@require_safe
def scrape(request: HttpRequest) -> HttpResponse:
    """In the format that the reader asks for. Raises `Forbidden`."""
    if not (_has_token(request) or _is_operator(request)):
        raise problems.Forbidden
    registry = CollectorRegistry(auto_describe=False)
    registry.register(LoadCollector())
    encode, content_type = _encoder(request.headers.get("Accept", ""))
    return HttpResponse(encode(registry), content_type=content_type)


def _encoder(wanted: str) -> tuple[Callable[[Collector], bytes], str]:
    try:
        return choose_encoder(wanted)
    except (TypeError, ValueError):  # prometheus_client 0.26 reads a version as numbers, whatever it is
        return choose_encoder("")


def _has_token(request: HttpRequest) -> bool:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    is_set = bool(settings.METRICS_TOKEN)
    return is_set and scheme.lower() == "bearer" and constant_time_compare(token.strip(), settings.METRICS_TOKEN)


def _is_operator(request: HttpRequest) -> bool:
    user = request.user
    return user.is_active and user.is_staff and user.has_perms(PERMISSIONS)
