"""What a page says while the database is away."""

from __future__ import annotations

import logging

from django.db import InterfaceError, OperationalError
from django.http import HttpResponse
from django.template.loader import render_to_string

from chat.problems import DatabaseUnavailable

logger = logging.getLogger(__name__)


def page(error: Exception) -> HttpResponse | None:
    """A page that says when to come back; None for what is no outage."""
    if not isinstance(error, OperationalError | InterfaceError):
        return None
    logger.error("database.unavailable reason=%s", type(error.__cause__ or error).__name__)
    problem = DatabaseUnavailable()
    # Without the request: whose page it is, nobody can tell now.
    return HttpResponse(render_to_string("503.html"), status=problem.status, headers=problem.headers)
