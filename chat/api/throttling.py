"""Requests per credential, as DRF wants it asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from chat import throttles
from chat.api import allowance
from chat.api.authentication import Credential

if TYPE_CHECKING:
    from rest_framework.views import APIView  # which imports this module, by its name in the settings


class CredentialThrottle(BaseThrottle):
    """One counter for each API key and each session, so that one cannot use up another's."""

    def allow_request(self, request: Request, _view: APIView) -> bool:
        """True. Raises `TooManyRequests`, which says more than False."""
        credential = Credential.of(request)
        allowance.note(request._request, credential)
        throttles.requests().take(credential.name)
        return True
