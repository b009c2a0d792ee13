"""Which problem an error is: ours, the scheduler's, Django's or DRF's."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import singledispatch
from typing import Any

from django.conf import settings
from django.core.exceptions import PermissionDenied, RequestDataTooBig, SuspiciousOperation
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpResponse
from rest_framework import exceptions as drf

from chat import problems
from chat.models import KeyLost
from chat.openai import errors as openai_errors
from chat.problems import Problem
from inference.tokens import TokensError
from scheduler.errors import BudgetExhausted, ModelUnknown, PromptExceedsBudget, QueueFull, Refused, TooManyRuns

logger = logging.getLogger(__name__)

# DRF's words for what is wrong with a field, where we have a better one.
REASONS = {"required": "missing", "null": "missing"}


def answer(error: Exception, context: Mapping[str, Any]) -> HttpResponse | None:
    """DRF's exception handler. None for a bug, which goes on to the middleware."""
    if isinstance(error, drf.MethodNotAllowed):
        allowed = ", ".join(context["view"].allowed_methods)
        return refusal(context["request"].path, problems.MethodNotAllowed(headers={"Allow": allowed}))
    problem = problem_of(error)
    return refusal(context["request"].path, problem) if problem else None


def refusal(path: str, problem: Problem) -> HttpResponse:
    """The problem as whoever asks at that address reads one."""
    return (
        openai_errors.response(path, problem) if path.startswith(openai_errors.PREFIX) else problems.response(problem)
    )


@singledispatch
def problem_of(_error: Exception) -> Problem | None:
    """The problem that an error is; None for a bug."""
    return None


@problem_of.register
def _(error: Problem) -> Problem:
    return error


@problem_of.register
def _(error: ModelUnknown) -> Problem:
    return problems.ModelUnknown(error.detail, **error.data)


@problem_of.register
def _(error: PromptExceedsBudget) -> Problem:
    return problems.PromptExceedsBudget(error.detail, **error.data)


@problem_of.register
def _(error: QueueFull) -> Problem:
    return problems.QueueFull(error)


@problem_of.register
def _(error: TooManyRuns) -> Problem:
    return problems.TooManyRuns(error)


@problem_of.register
def _(error: BudgetExhausted) -> Problem:
    return problems.BudgetExhausted(error)


@problem_of.register
def _(error: Refused) -> Problem:
    return problems.TooManyRequests(error)


@problem_of.register
def _(_error: KeyLost) -> Problem:
    return problems.IdempotencyInFlight()


@problem_of.register
def _(error: TokensError) -> Problem:
    logger.error("model.unusable code=%s", error.code)  # its text may quote the prompt
    return problems.ModelUnusable()


@problem_of.register(OperationalError)
@problem_of.register(InterfaceError)
def _(error: Exception) -> Problem:
    logger.error("database.unavailable reason=%s", type(error.__cause__ or error).__name__)
    return problems.DatabaseUnavailable()


@problem_of.register(Http404)
@problem_of.register(drf.NotFound)
def _(_error: Exception) -> Problem:
    return problems.NotFound()


@problem_of.register(PermissionDenied)
@problem_of.register(drf.PermissionDenied)
def _(_error: Exception) -> Problem:
    return problems.Forbidden()


@problem_of.register
def _(_error: RequestDataTooBig) -> Problem:
    return problems.BodyTooLarge(max_bytes=settings.DATA_UPLOAD_MAX_MEMORY_SIZE)


@problem_of.register
def _(_error: SuspiciousOperation) -> Problem:
    return problems.Invalid()


@problem_of.register(drf.NotAuthenticated)
@problem_of.register(drf.AuthenticationFailed)
def _(_error: Exception) -> Problem:
    return problems.NotAuthenticated()


@problem_of.register
def _(_error: drf.ParseError) -> Problem:
    return problems.BodyNotJson()


@problem_of.register
def _(_error: drf.UnsupportedMediaType) -> Problem:
    return problems.MediaTypeUnsupported()


@problem_of.register
def _(error: drf.ValidationError) -> Problem:
    """The first field that a serializer refused; its code is `<field>_<reason>`."""
    fields: dict[str, Any] = error.detail  # type: ignore[assignment]  # a serializer's are like that
    field, reasons = next(iter(fields.items()))
    reason = _first(reasons)
    if field == "non_field_errors":
        return problems.FieldInvalid("body_not_object", "The body must be a JSON object.", field="")
    code = reason.code or "invalid"
    return problems.FieldInvalid(f"{field}_{REASONS.get(code, code)}", str(reason), field=field)


def _first(reasons: Any) -> drf.ErrorDetail:
    """Of a list's element the reasons stand below its place in the list."""
    while not isinstance(reasons, drf.ErrorDetail):
        reasons = next(iter(reasons.values() if isinstance(reasons, dict) else reasons))
    return reasons
