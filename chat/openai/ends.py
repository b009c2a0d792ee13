"""How a run's end is told to a program."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from chat import endings
from chat.problems import Problem
from chat.streaming.frames import Told


class RunFailed(Problem):
    """The run that the request began came to no answer."""

    title = "Run failed"

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.code = data["code"]
        headers = {}
        if not data["retryable"]:
            self.status = HTTPStatus.BAD_REQUEST  # type: ignore[misc]  # the same request would fail again
        elif self.code == endings.QUEUE_TIMEOUT:
            self.status = HTTPStatus.SERVICE_UNAVAILABLE  # type: ignore[misc]
            headers["Retry-After"] = "30"
        super().__init__(data["detail"], headers=headers)


class RunCancelled(Problem):
    """Somebody cancelled it while its client waited."""

    status = HTTPStatus.CONFLICT
    code = "run_cancelled"
    title = "Run cancelled"
    detail = "This run was cancelled while it was being answered."


class TextVoided(Problem):
    """A part of the answer that was told is not in it: there is no word for that in OpenAI's streams."""

    status = HTTPStatus.SERVICE_UNAVAILABLE
    code = "text_voided"
    title = "Text voided"
    detail = "A server was lost, and what it had told of this answer does not stand. Ask again."
    retry_after_s = 1


def failure(told: Told) -> Problem:
    """Of a run that is over and not done."""
    return RunCancelled() if told.name == "cancelled" else RunFailed(told.data)


def finish_reason(data: Mapping[str, Any]) -> str:
    """`length` where it was cut at its cap, else `stop`."""
    return "length" if data["finish_reason"] == "length" else "stop"
