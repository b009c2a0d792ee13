"""What every view of the JSON API is."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.cache import add_never_cache_headers
from rest_framework.response import Response
from rest_framework.views import APIView

from chat.api.authentication import Credential
from chat.api.revalidation import revalidated
from chat.connections import given_back


class View(APIView):
    """DRF's, which holds a database connection only while it runs, and whose answers no cache keeps unless told."""

    is_revalidated = False  # whether GET tells who has its answer that it is still so

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """As DRF does. Raises `RequestDataTooBig`."""
        with given_back():
            _measure(request)
            response = super().dispatch(request, *args, **kwargs)
        if self.is_revalidated and isinstance(response, Response) and request.method in ("GET", "HEAD"):
            # A browser's disk outlasts the session that it signs out of.
            return revalidated(request, response, may_be_kept=Credential.of(self.request).key is not None)
        add_never_cache_headers(response)
        return response


def _measure(request: HttpRequest) -> None:
    """Read a body that comes in chunks, without a length: DRF takes it for none, and Django sets it no limit."""
    if request.headers.get("Transfer-Encoding") and "CONTENT_LENGTH" not in request.META:
        body = request.read(settings.DATA_UPLOAD_MAX_MEMORY_SIZE + 1)
        if len(body) > settings.DATA_UPLOAD_MAX_MEMORY_SIZE:
            raise RequestDataTooBig
        request._body = body  # where Django keeps what was read
        request.META["CONTENT_LENGTH"] = str(len(body))
