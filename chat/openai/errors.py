"""Refusals as OpenAI's clients read them.

They try again by themselves what has status 408, 409, 429 or 5xx, up to twice within seconds; `x-should-retry` says
whether that makes sense.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from django.http import HttpResponse

from chat.problems import Problem

PREFIX = "/v1/"
RESPONSES = "/v1/responses"
# What clients wait for; a longer Retry-After they take for none.
LONGEST_WAIT_S = 60
TYPES: Mapping[int, str] = {
    HTTPStatus.UNAUTHORIZED: "authentication_error",
    HTTPStatus.FORBIDDEN: "permission_error",
    HTTPStatus.NOT_FOUND: "not_found_error",
    HTTPStatus.CONFLICT: "conflict_error",
    HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_error",
}
# Where OpenAI has a code for it; all others are ours.
CODES: Mapping[str, str] = {
    "not_authenticated": "invalid_api_key",
    "model_unknown": "model_not_found",
    "prompt_too_long": "context_length_exceeded",
    "too_many_requests": "rate_limit_exceeded",
    "too_many_runs": "rate_limit_exceeded",
    "budget_exhausted": "insufficient_quota",
}
STATUSES: Mapping[str, HTTPStatus] = {"model_unknown": HTTPStatus.NOT_FOUND}
OF_MESSAGES = frozenset(
    {
        *("content_has_nul", "content_not_unicode", "content_too_large"),
        *("prompt_too_long", "prompt_exceeds_budget", "too_many_messages", "messages_refused"),
    }
)


def response(path: str, problem: Problem) -> HttpResponse:
    """The problem in OpenAI's shape, with our own code as `reason`, as an answer at that address."""
    status = STATUSES.get(problem.code, problem.status)
    headers = {**problem.headers, "x-should-retry": "true" if _is_worth_retrying(problem, status) else "false"}
    body = json.dumps(described(problem, "input" if path.startswith(RESPONSES) else "messages"))
    return HttpResponse(body, status=status, reason=problem.title, headers=headers, content_type="application/json")


def described(problem: Problem, messages: str = "") -> Mapping[str, Any]:
    """The error's JSON object, also within a stream. `messages` is what they are called at the address."""
    status = STATUSES.get(problem.code, problem.status)
    usual = "server_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request_error"
    return {
        "error": {
            "message": _message(problem),
            "type": TYPES.get(status, usual),
            "param": _param(problem, messages),
            "code": CODES.get(problem.code, problem.code),
            "reason": problem.code,
        }
    }


def _message(problem: Problem) -> str:
    """With the field's name: many programs show people nothing else."""
    field = problem.data.get("field")
    return f"`{field}`: {problem.detail}" if field and f"`{field}`" not in problem.detail else problem.detail


def _param(problem: Problem, messages: str) -> str | None:
    if problem.code in OF_MESSAGES:
        return messages or None
    return "model" if problem.code == "model_unknown" else problem.data.get("field") or None


def _is_worth_retrying(problem: Problem, status: int) -> bool:
    wait = problem.headers.get("Retry-After")
    if wait is not None:
        return int(wait) <= LONGEST_WAIT_S
    return status >= HTTPStatus.INTERNAL_SERVER_ERROR
