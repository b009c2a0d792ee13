"""What requests may carry beside a body, and answers beside theirs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from drf_spectacular.utils import OpenApiParameter

from chat.api import idempotency
from chat.api.paging import ACTIVITY, DEFAULT_LIMIT, MAX_LIMIT
from chat.streaming.naming import MAX_RUNS

# An id of a run's event, as its stream gives it.
EVENT_ID = r"[0-9]+-[0-9]+-[0-9]+"
UUID = r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"


def _path(name: str, description: str) -> OpenApiParameter:
    return OpenApiParameter(
        name, {"type": "string", "format": "uuid"}, OpenApiParameter.PATH, required=True, description=description
    )


CHAT_ID = _path("chat_id", "A chat of the user's.")
MESSAGE_ID = _path("message_id", "A message in a chat of the user's.")
RUN_ID = _path("run_id", "A run in a chat of the user's.")
KEY_ID = _path("key_id", "An API key of the user's: its `id`, which is not its secret.")
LIMIT = OpenApiParameter(
    "limit",
    {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT},
    description="Results on a page.",
)


def cursor(pattern: str) -> OpenApiParameter:
    """Where a page begins."""
    return OpenApiParameter(
        "cursor",
        {"type": "string", "pattern": f"^({pattern})?$"},
        description="Where the page begins: follow `next` of the page before as it is. Empty is the first page.",
    )


CHAT_CURSOR = cursor(ACTIVITY.pattern)
MESSAGE_CURSOR = cursor("[0-9]{1,10}")
IDEMPOTENCY_KEY = OpenApiParameter(
    idempotency.HEADER,
    {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]([ -~]*[!-~])?$"},
    OpenApiParameter.HEADER,
    description="A key of this request's own, such as a random UUID: sent again with it, the request is done once.",
)
IF_NONE_MATCH = OpenApiParameter(
    "If-None-Match",
    {"examples": ['"0b0a52f28ad1c46f8e1f1b7c9c5a5b43"']},  # what is none is as good as nothing
    OpenApiParameter.HEADER,
    description="The `ETag` of what you have: if it is still so, the answer is 304.",
)
LAST_EVENT_ID = OpenApiParameter(
    "lastEventId",
    {"type": "string", "pattern": f"^({EVENT_ID})?$"},
    description="The id of the last event that was received; the stream goes on behind it.",
)
LAST_EVENT_ID_HEADER = OpenApiParameter(
    "Last-Event-ID",
    {"type": "string", "pattern": f"^({EVENT_ID})?$"},
    OpenApiParameter.HEADER,
    description="The same, as browsers send it; it is newer than what the address names.",
)
NAMED_RUNS = OpenApiParameter(
    "run",
    {"type": "array", "maxItems": MAX_RUNS, "items": {"type": "string", "pattern": f"^{UUID}(:({EVENT_ID})?)?$"}},
    style="form",
    explode=True,
    description="A run whose events come in between, and behind a colon the id of the last event had of it.",
)


def retry_after(statuses: Iterable[int]) -> OpenApiParameter:
    """When to come back."""
    return _answered("Retry-After", "In how many seconds it may be worth another try.", statuses, "integer")


def of_a_credential(statuses: Iterable[int]) -> Sequence[OpenApiParameter]:
    """What every answer to one says, and what is said to who has none."""
    known = [status for status in statuses if status != 401]
    return [
        _answered("WWW-Authenticate", "The scheme of keys.", [401]),
        _answered("RateLimit-Policy", "What a credential and its user may have in which time.", known),
        _answered("RateLimit", "What is left of that, and when there is more.", known),
    ]


def etag(statuses: Iterable[int]) -> OpenApiParameter:
    """By what an answer is asked for again."""
    return _answered(
        "ETag", "Names this answer: send it as `If-None-Match` to be told only what has changed.", statuses
    )


def replayed(statuses: Iterable[int]) -> OpenApiParameter:
    """Whether it was done now."""
    return _answered("Idempotent-Replayed", "`true` where the request had been done before.", statuses)


def _answered(name: str, description: str, statuses: Iterable[int], schema_type: str = "string") -> OpenApiParameter:
    """A header of answers with these statuses."""
    return OpenApiParameter(
        name,
        {"type": schema_type},
        OpenApiParameter.HEADER,
        description=description,
        response=[str(status) for status in statuses],
    )
