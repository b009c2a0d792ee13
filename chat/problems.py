"""Typed errors and their shape in HTTP: application/problem+json, made here and nowhere else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, ClassVar

from django.http import HttpResponse

from scheduler.errors import Refused


class Problem(Exception):
    """Root of what the API answers instead of what was asked: a status, a stable `code`, a `detail`, data.

    Problem
    ├── NotAuthenticated       401  no credential, or none that opens
    ├── Forbidden              403
    │   ├── CsrfFailed              a session changes nothing without its token
    │   └── ScopeMissing            the key is for other things; `scope` is the one it lacks
    ├── NotFound               404  unknown, malformed, or somebody else's
    ├── MethodNotAllowed       405
    ├── ChatBusy               409  it is still being answered; `run_id` is the live run
    ├── ChatFull               409  it has its questions: `turns`, of `limit`
    ├── NotLatest              409  another question came after the one to be answered again
    ├── TooManyKeys            409  the user has as many API keys as one may
    ├── IdempotencyInFlight    409  the first request with this key is not over
    ├── IdempotencyKeyReused   422  this key came with another request
    ├── BodyTooLarge           413
    ├── MediaTypeUnsupported   415
    ├── Invalid                400  the request can never succeed as it is
    │   ├── BodyNotJson
    │   ├── FieldInvalid            `field` has a wrong shape; code `<field>_<what>`
    │   ├── ContentBlank, ContentHasNul, ContentNotUnicode, ContentTooLarge
    │   ├── PromptTooLong           the message alone does not fit the model's window
    │   ├── ModelUnknown
    │   ├── PromptExceedsBudget     it does not even fit a full budget
    │   ├── IdempotencyKeyInvalid
    │   └── CursorInvalid, LimitInvalid
    ├── TooManyRequests        429  over a personal limit: of requests or streams; code is the scheduler's
    │   ├── TooManyRuns
    │   └── BudgetExhausted
    ├── QueueFull              503  as many runs wait as may: nobody's fault
    ├── ModelUnusable          503  its tokenizer or template is broken
    ├── Stopping               503  the process was told to stop, and ran out of time
    ├── DatabaseUnavailable    503
    └── Internal               500  a bug of ours, told without its inside
    """

    status: ClassVar[HTTPStatus] = HTTPStatus.INTERNAL_SERVER_ERROR
    code = "internal_error"
    title = "Internal error"
    detail = "Something went wrong on our side."
    retry_after_s: ClassVar[int | None] = None  # where it may be worth another try

    def __init__(self, detail: str | None = None, *, headers: Mapping[str, str] | None = None, **data: Any) -> None:
        self.detail = detail or self.detail
        self.headers = dict(headers or {})
        if self.retry_after_s is not None:
            self.headers["Retry-After"] = str(self.retry_after_s)
        self.data = data
        super().__init__(self.code, self.detail)


class Internal(Problem):
    """A bug of ours."""


class NotAuthenticated(Problem):
    """No credential, or none that opens."""

    status = HTTPStatus.UNAUTHORIZED
    code = "not_authenticated"
    title = "Not signed in"
    detail = "Send an API key as `Authorization: Bearer <key>`, or sign in."

    def __init__(self, detail: str | None = None) -> None:
        super().__init__(detail, headers={"WWW-Authenticate": 'Bearer realm="palaver"'})


class Forbidden(Problem):
    """Signed in, and still not allowed."""

    status = HTTPStatus.FORBIDDEN
    code = "forbidden"
    title = "Not allowed"
    detail = "You may not do this."


class CsrfFailed(Forbidden):
    """A session changes nothing without its token."""

    code = "csrf_failed"
    title = "CSRF token missing or wrong"
    detail = "Send the CSRF cookie's value as X-CSRFToken, from a page of this site."


class ScopeMissing(Forbidden):
    """The key is for other things."""

    code = "scope_missing"
    title = "Key lacks a scope"

    def __init__(self, scope: str) -> None:
        super().__init__(f"This API key lacks the scope `{scope}`. Use one that has it.", scope=scope)


class NotFound(Problem):
    """Unknown, malformed, or somebody else's: which of them is not told."""

    status = HTTPStatus.NOT_FOUND
    code = "not_found"
    title = "Not found"
    detail = "There is nothing of yours at this address."


class MethodNotAllowed(Problem):
    """The address does not take this method."""

    status = HTTPStatus.METHOD_NOT_ALLOWED
    code = "method_not_allowed"
    title = "Method not allowed"
    detail = "This address does not take that method; the Allow header lists those it does."


class ChatBusy(Problem):
    """The chat is still being answered."""

    status = HTTPStatus.CONFLICT
    code = "chat_busy"
    title = "Chat busy"
    detail = "This chat is still being answered. Wait for the run to end, or cancel it."


class ChatFull(Problem):
    """The chat has as many questions as it may have."""

    status = HTTPStatus.CONFLICT
    code = "chat_full"
    title = "Chat full"

    def __init__(self, turns: int, limit: int) -> None:
        questions = "question" if limit == 1 else "questions"
        detail = f"This chat has its {limit} {questions}. Begin a new one: it goes on from this chat's summary."
        super().__init__(detail, turns=turns, limit=limit)


class NotLatest(Problem):
    """Only the chat's latest question can be answered again."""

    status = HTTPStatus.CONFLICT
    code = "not_latest"
    title = "Not the latest question"
    detail = "Another question came after this one: only the chat's latest can be answered again."


class TooManyKeys(Problem):
    """The user has as many API keys as one may."""

    status = HTTPStatus.CONFLICT
    code = "too_many_keys"
    title = "Too many API keys"

    def __init__(self, limit: int) -> None:
        super().__init__(f"You have {limit} API keys. Revoke one that is not used any more.", limit=limit)


class IdempotencyInFlight(Problem):
    """The first request with this key is not over."""

    status = HTTPStatus.CONFLICT
    code = "idempotency_in_flight"
    title = "Request in flight"
    detail = "Another request with this Idempotency-Key is being served. Send yours again to learn what it made."
    retry_after_s = 1


class IdempotencyKeyReused(Problem):
    """This key came with another request."""

    status = HTTPStatus.UNPROCESSABLE_ENTITY
    code = "idempotency_key_reused"
    title = "Idempotency-Key reused"
    detail = "This Idempotency-Key came with another address or body. Make a new key for each new request."


class BodyTooLarge(Problem):
    """The request's body is longer than any valid one."""

    status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    code = "body_too_large"
    title = "Body too large"
    detail = "The request's body is longer than any valid one."


class MediaTypeUnsupported(Problem):
    """Bodies are JSON."""

    status = HTTPStatus.UNSUPPORTED_MEDIA_TYPE
    code = "media_type_unsupported"
    title = "Media type not supported"
    detail = "Send the body as application/json."


class Invalid(Problem):
    """The request can never succeed as it is."""

    status = HTTPStatus.BAD_REQUEST
    code = "invalid"
    title = "Invalid request"
    detail = "The request is not valid."


class BodyNotJson(Invalid):
    """The body cannot be read as JSON."""

    code = "body_not_json"
    title = "Body is not JSON"
    detail = "The body cannot be read as JSON."


class FieldInvalid(Invalid):
    """A field of the body has a wrong shape."""

    title = "Field invalid"

    def __init__(self, code: str, detail: str, field: str) -> None:
        self.code = code
        super().__init__(detail, field=field)


class ContentBlank(Invalid):
    """Nothing but white space."""

    code = "content_blank"
    title = "Content blank"
    detail = "The content is empty, or nothing but white space."


class ContentHasNul(Invalid):
    """A NUL character, which no text has and Postgres does not store."""

    code = "content_has_nul"
    title = "Content has a NUL character"
    detail = "The content has a NUL character (U+0000)."


class ContentNotUnicode(Invalid):
    """Half of a surrogate pair, which is no character."""

    code = "content_not_unicode"
    title = "Content is not Unicode text"
    detail = "The content has one half of a surrogate pair, which is no character."


class ContentTooLarge(Invalid):
    """More bytes than are ever tokenised."""

    code = "content_too_large"
    title = "Content too large"

    def __init__(self, size_bytes: int, max_bytes: int) -> None:
        detail = f"The content has {size_bytes} bytes in UTF-8; at most {max_bytes} are taken."
        super().__init__(detail, size_bytes=size_bytes, max_bytes=max_bytes)


class PromptTooLong(Invalid):
    """It does not fit the model's window, though nothing of the chat goes with it."""

    code = "prompt_too_long"
    title = "Prompt too long"

    def __init__(self, input_tokens: int, context_window: int, what: str) -> None:
        detail = (
            f"{what} {input_tokens} tokens; the model's window of {context_window} "
            "must hold them and at least one of the answer. Send less of it."
        )
        super().__init__(detail, input_tokens=input_tokens, context_window=context_window)


class ModelUnknown(Invalid):
    """No such model, or none for this tier."""

    code = "model_unknown"
    title = "Model unknown"


class PromptExceedsBudget(Invalid):
    """With the chat's history it does not even fit a full budget."""

    code = "prompt_exceeds_budget"
    title = "Prompt exceeds budget"


class IdempotencyKeyInvalid(Invalid):
    """Not a key that could be kept."""

    code = "idempotency_key_invalid"
    title = "Idempotency-Key invalid"
    detail = "An Idempotency-Key has 1 to 255 printable ASCII characters. A random UUID is a good one."


class CursorInvalid(Invalid):
    """Not a cursor of ours."""

    code = "cursor_invalid"
    title = "Cursor invalid"
    detail = "Take the cursor from `next` of the page before, unchanged."


class LimitInvalid(Invalid):
    """Not a number of results."""

    code = "limit_invalid"
    title = "Limit invalid"


class TooManyRequests(Problem):
    """Over a personal limit."""

    status = HTTPStatus.TOO_MANY_REQUESTS
    code = "too_many_requests"
    title = "Too many requests"

    def __init__(self, refusal: Refused) -> None:
        self.code = refusal.code
        super().__init__(refusal.detail, headers={"Retry-After": str(refusal.retry_after_s)}, **refusal.data)


class TooManyRuns(TooManyRequests):
    """As many of the user's runs are live as may be."""

    title = "Too many answers at once"


class BudgetExhausted(TooManyRequests):
    """What is left of the user's budget does not suffice."""

    title = "Budget exhausted"


class QueueFull(Problem):
    """At capacity: as many runs wait as may."""

    status = HTTPStatus.SERVICE_UNAVAILABLE
    code = "queue_full"
    title = "Queue full"

    def __init__(self, refusal: Refused) -> None:
        super().__init__(refusal.detail, headers={"Retry-After": str(refusal.retry_after_s)}, **refusal.data)


class ModelUnusable(Problem):
    """The model's tokenizer or chat template is broken: the operator's to mend."""

    status = HTTPStatus.SERVICE_UNAVAILABLE
    code = "model_unusable"
    title = "Model unusable"
    detail = "This model cannot take prompts now. Try another, or come back later."
    retry_after_s = 60


class DatabaseUnavailable(Problem):
    """No connection to Postgres, or none free within the pool's patience."""

    status = HTTPStatus.SERVICE_UNAVAILABLE
    code = "database_unavailable"
    title = "Database unavailable"
    detail = "The database does not answer. Try again soon."
    retry_after_s = 2


class Stopping(Problem):
    """This process was told to stop, and ran out of time."""

    status = HTTPStatus.SERVICE_UNAVAILABLE
    code = "stopping"
    title = "Server stopping"
    detail = "This server process stops, and could not answer in time. Send the request again."
    retry_after_s = 1


def response(problem: Problem) -> HttpResponse:
    """The problem as application/problem+json."""
    body = {
        "type": "about:blank",
        "title": problem.title,
        "status": problem.status.value,
        "code": problem.code,
        "detail": problem.detail,
        **problem.data,
    }
    return HttpResponse(
        json.dumps(body, ensure_ascii=True),
        status=problem.status,
        reason=problem.title,  # what the log says of it
        headers=problem.headers,
        content_type="application/problem+json",
    )
