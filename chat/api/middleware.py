"""What goes wrong at programs' addresses is answered as a problem, bugs too, whatever view it was; else as a page."""

from __future__ import annotations

import logging
import sys

from django.core.signals import got_request_exception
from django.http import HttpRequest, HttpResponse
from django.utils.deprecation import MiddlewareMixin
from django.views import defaults

from chat import outages, problems
from chat.api.errors import problem_of, refusal
from chat.openai.errors import PREFIX

logger = logging.getLogger(__name__)
# What programs ask for.
PREFIXES = ("/api/", PREFIX, "/metrics")


class ProblemMiddleware(MiddlewareMixin):
    """Turns exceptions of API views into problems: the reader learns nothing of a bug, the log all."""

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        """Answer for the view that raised."""
        if not request.path.startswith(PREFIXES):
            return outages.page(error)
        return answered(request, error)


def answered(request: HttpRequest, error: Exception) -> HttpResponse:
    """The problem that an error is, or another of which the log says more."""
    problem = problem_of(error)
    if problem is None:
        logger.error("request.failed path=%s", request.path, exc_info=error)
        # As Django does for exceptions that nobody answers.
        got_request_exception.send(sender=ProblemMiddleware, request=request)
        problem = problems.Internal()
    return refusal(request.path, problem)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Django's handler400: what is refused before it comes to a view, such as a host that is not ours."""
    if request.path.startswith(PREFIXES):
        return refusal(request.path, problem_of(exception) or problems.Invalid())
    return defaults.bad_request(request, exception)


def server_error(request: HttpRequest) -> HttpResponse:
    """Django's handler500: exceptions from outside of views, such as of a session that could not be stored."""
    error = sys.exc_info()[1]
    if request.path.startswith(PREFIXES):
        problem = problem_of(error) if isinstance(error, Exception) else None
        return refusal(request.path, problem or problems.Internal())
    page = outages.page(error) if isinstance(error, Exception) else None
    return page or defaults.server_error(request)
