"""What goes wrong below /api/ is answered as a problem, bugs too, whatever kind of view it was."""

from __future__ import annotations

import logging

from django.core.signals import got_request_exception
from django.http import HttpRequest, HttpResponse
from django.utils.deprecation import MiddlewareMixin
from django.views.defaults import server_error as page

from chat import problems
from chat.api.errors import problem_of

logger = logging.getLogger(__name__)
PREFIX = "/api/"


class ProblemMiddleware(MiddlewareMixin):
    """Turns exceptions of API views into problems: the reader learns nothing of a bug, the log all."""

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        """Answer for the view that raised."""
        if not request.path.startswith(PREFIX):
            return None
        problem = problem_of(error)
        if problem is None:
            logger.error("request.failed path=%s", request.path, exc_info=error)
            # As Django does for exceptions that nobody answers.
            got_request_exception.send(sender=type(self), request=request)
            problem = problems.Internal()
        return problems.response(problem)


def server_error(request: HttpRequest) -> HttpResponse:
    """Django's handler500: exceptions from outside of views."""
    return problems.response(problems.Internal()) if request.path.startswith(PREFIX) else page(request)
