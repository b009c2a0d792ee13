"""How a run's end is told to a program."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from chat import endings
from chat.problems import Problem
from chat.streaming.frames import Told


class RunFailed(Problem):
    """The run that the request began came to no answer; its code and detail are the run's."""

    title = "Run failed"


class RunTimedOut(RunFailed):
    """No worker had time for it."""

    status = HTTPStatus.SERVICE_UNAVAILABLE
    retry_after_s = 30


class RunRefused(RunFailed):
    """The same request would fail again."""

    status = HTTPStatus.BAD_REQUEST


class RunCancelled(Problem):
    """Somebody cancelled it while its client waited."""

    status = HTTPStatus.CONFLICT
    code = "run_cancelled"
    title = "Run cancelled"
    detail = "This run was cancelled, or deleted with its chat, while it was being answered."


class TextVoided(Problem):
    """A part of the answer that was told is not in it: there is no word for that in OpenAI's streams."""

    status = HTTPStatus.SERVICE_UNAVAILABLE
    code = "text_voided"
    title = "Text voided"
    detail = "What was told of this answer does not stand any more. Fetch it anew, or ask again."
    retry_after_s = 1


def failure(told: Told) -> Problem:
    """Of a run that is over and not done."""
    if told.name == "cancelled":
        return RunCancelled()
    code, is_retryable = told.data["code"], told.data["retryable"]
    kind = RunTimedOut if code == endings.QUEUE_TIMEOUT else RunFailed if is_retryable else RunRefused
    problem = kind(told.data["detail"])
    problem.code = code
    return problem


def finish_reason(data: Mapping[str, Any]) -> str:
    """`length` where it was cut at its cap, else `stop`."""
    return "length" if data["finish_reason"] == "length" else "stop"
