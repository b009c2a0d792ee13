"""What runs and messages are called under /v1/."""

from __future__ import annotations

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
    try:
        return UUID(hex=response_id.removeprefix(RESPONSE)) if response_id.startswith(RESPONSE) else None
    except ValueError:
        return None
