"""What runs and messages are called under /v1/."""

from __future__ import annotations

import re
from uuid import UUID

RESPONSE, COMPLETION, MESSAGE = "resp_", "chatcmpl-", "msg_"


class ResponseConverter:
    """A response's name in an address, which is its run's id. Anything else is not found."""

    regex = f"{RESPONSE}[0-9a-f]{{32}}"

    def to_python(self, value: str) -> UUID:
        """The run's id."""
        return UUID(hex=value.removeprefix(RESPONSE))

    def to_url(self, value: UUID) -> str:
        """The reverse."""
        return named(RESPONSE, value)


def named(kind: str, row_id: UUID) -> str:
    """The name of a row."""
    return f"{kind}{row_id.hex}"


def run_of(response_id: str) -> UUID | None:
    """The run that a response's name is of; None for any other text."""
    is_one = re.fullmatch(ResponseConverter.regex, response_id)
    return ResponseConverter().to_python(response_id) if is_one else None
