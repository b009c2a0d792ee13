"""Every code that the API refuses with: a specimen of each problem, as it is answered."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from django.conf import settings

from chat import keyring, problems
from chat.api.paging import MAX_LIMIT
from chat.models import Scope
from chat.problems import FieldInvalid, Problem
from chat.streaming import refusals
from chat.streaming.naming import MAX_RUNS
from scheduler import errors

A_RUN = "0193a5c2-9d1e-7b30-8a44-2f6c1f0e7d21"

# Whoever asks, and whatever for.
EVERYWHERE = ("invalid", "database_unavailable", "stopping")
CREDENTIAL = ("not_authenticated", "scope_missing", "too_many_requests")
VIEW = ("body_too_large",)
CHANGE = ("csrf_failed",)
BODY = ("body_not_json", "media_type_unsupported")
KEYED = ("idempotency_key_invalid", "idempotency_in_flight", "idempotency_key_reused")
PAGED = ("limit_invalid", "cursor_invalid")
PROMPT = ("model_unknown", "prompt_too_long", "prompt_exceeds_budget", "model_unusable")
ADMISSION = ("chat_busy", "too_many_runs", "budget_exhausted", "queue_full")
STREAM = ("bad_event_id", "too_many_streams", "streams_unavailable", "streams_full")

FIELDS = {
    "content_missing": "This field is required.",
    "content_not_text": "This must be a string.",
    "model_not_text": "This must be a string.",
    "max_output_tokens_invalid": "This must be a positive whole number.",
    "continues_invalid": "This must be an id: a UUID, as a string.",
    "title_missing": "This field is required.",
    "title_not_text": "This must be a string.",
    "title_blank": "A title must not be blank.",
    "title_too_long": "A title has at most 200 characters.",
    "title_invalid": "A title is one line of text, without control characters.",
    "name_missing": "This field is required.",
    "name_not_text": "This must be a string.",
    "name_blank": "A name must not be blank.",
    "name_too_long": f"A name has at most {keyring.NAME_CHARS} characters.",
    "name_invalid": "A name is one line of text, without control characters.",
    "scopes_missing": "This field may not be null.",
    "scopes_empty": "This list may not be empty.",
    "scopes_not_a_list": 'Expected a list of items but got type "str".',
    "scopes_invalid_choice": '"root" is not a valid choice.',
    "expires_at_invalid": "Datetime has wrong format. Use one of these formats instead: YYYY-MM-DDThh:mm[:ss[.uuuuuu]]"
    "[+HH:MM|-HH:MM|Z].",
    "expires_at_overflow": "Datetime value out of range.",
    "expires_at_past": "A key cannot expire before it is made.",
}
BUDGET_DETAIL = (
    "This may take 561 tokens, more than is left of your budget. "
    "There will be enough at 2026-11-30 15:04:06 UTC. A shorter answer may be had before."
)


def _field(code: str, detail: str) -> FieldInvalid:
    fields = ("content", "model", "max_output_tokens", "continues", "title", "name", "scopes", "expires_at")
    return FieldInvalid(code, detail, next(field for field in fields if code.startswith(f"{field}_")))


def _model_unknown() -> Problem:
    error = errors.ModelUnknown("nowhere")
    return problems.ModelUnknown(error.detail, **error.data)


def _prompt_exceeds_budget() -> Problem:
    error = errors.PromptExceedsBudget(60_000, 50_000)
    return problems.PromptExceedsBudget(error.detail, **error.data)


def _budget_exhausted() -> Problem:
    """Not the scheduler's own, which looks at the clock: the description is the same in every process."""
    refusal = errors.Refused(BUDGET_DETAIL, 475, cost_tokens=561, retry_at="2026-11-30T15:04:05.679+00:00")
    refusal.code = errors.BudgetExhausted.code
    return problems.BudgetExhausted(refusal)


_SPECIMENS: Sequence[Problem] = (
    problems.NotAuthenticated(),
    problems.Forbidden(),
    problems.CsrfFailed(),
    problems.ScopeMissing(Scope.WRITE.value),
    problems.NotFound(),
    problems.MethodNotAllowed(headers={"Allow": "GET, POST, HEAD, OPTIONS"}),
    problems.ChatBusy(run_id=A_RUN),
    problems.ChatFull(turns=200, limit=200),
    problems.NotLatest(),
    problems.TooManyKeys(keyring.MAX_KEYS),
    problems.IdempotencyInFlight(),
    problems.IdempotencyKeyReused(),
    problems.BodyTooLarge(max_bytes=settings.DATA_UPLOAD_MAX_MEMORY_SIZE),
    problems.MediaTypeUnsupported(),
    problems.Invalid(),
    problems.BodyNotJson(),
    FieldInvalid("body_not_object", "The body must be a JSON object.", field=""),
    *(_field(code, detail) for code, detail in FIELDS.items()),
    problems.ContentBlank(),
    problems.ContentHasNul(),
    problems.ContentNotUnicode(at=0),
    problems.ContentTooLarge(settings.MAX_CONTENT_BYTES + 1, settings.MAX_CONTENT_BYTES),
    problems.PromptTooLong(9000, 8192, "This message alone makes"),
    _model_unknown(),
    _prompt_exceeds_budget(),
    problems.IdempotencyKeyInvalid(),
    problems.CursorInvalid(),
    problems.LimitInvalid(f"`limit` is a number from 1 to {MAX_LIMIT}."),
    refusals.BadEventId(),
    refusals.TooManyNamed(MAX_RUNS),
    problems.TooManyRequests(errors.TooManyRequests(12)),
    problems.TooManyRuns(errors.TooManyRuns(2)),
    problems.TooManyRequests(errors.TooManyNewKeys(3000)),
    _budget_exhausted(),
    refusals.TooManyStreams(settings.STREAMS_PER_USER),
    problems.QueueFull(errors.QueueFull(7)),
    problems.ModelUnusable(),
    problems.DatabaseUnavailable(),
    refusals.StreamsUnavailable(),
    refusals.StreamsFull(),
    problems.Stopping(),
    problems.Internal(),
)
SPECIMENS: Mapping[str, Problem] = {problem.code: problem for problem in _SPECIMENS}


def of_fields(*fields: str) -> tuple[str, ...]:
    """The codes of what may be wrong with a body that has these fields, its own shape included."""
    return ("body_not_object", *(code for code in FIELDS if code.startswith(tuple(f"{field}_" for field in fields))))


def by_status(codes: Iterable[str]) -> Mapping[int, Sequence[Problem]]:
    """The problems by the status that each is answered with, each once."""
    found = sorted((SPECIMENS[code] for code in dict.fromkeys(codes)), key=lambda problem: problem.status)
    return {int(status): list(group) for status, group in groupby(found, key=lambda problem: problem.status)}


def body(problem: Problem) -> Mapping[str, Any]:
    """What is answered, as JSON."""
    answered: Mapping[str, Any] = json.loads(problems.response(problem).content)
    return answered
