"""A response as an object, made of its run's row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from django.db import DatabaseError, InterfaceError

from chat.models import Run, Status
from chat.openai.ends import RunCancelled
from chat.openai.names import MESSAGE, RESPONSE, named
from chat.problems import DatabaseUnavailable
from chat.sampling import sampling_of
from chat.streaming import rows
from chat.wishes import Wishes

# What an object is made of, and what is asked when a response goes on from it.
READ = Run.objects.select_related("chat", "model", "answer", "prompt")
STATUSES: Mapping[str, str] = {
    Status.QUEUED: "queued",
    Status.STREAMING: "in_progress",
    Status.DONE: "completed",
    Status.CANCELLED: "cancelled",
    Status.FAILED: "failed",
}


async def read(run_id: UUID) -> Run:
    """The run as it is now. Raises `RunCancelled` where it was deleted with its chat, `DatabaseUnavailable`."""
    try:
        return await rows.ask(lambda: READ.get(pk=run_id))
    except Run.DoesNotExist as gone:
        raise RunCancelled from gone
    except (DatabaseError, InterfaceError) as error:
        raise DatabaseUnavailable from error


def described(run: Run) -> Mapping[str, Any]:
    """The whole object; of a live run without output. The run was read with its chat, model and answer."""
    wishes, sampling = Wishes.of(run), sampling_of(run)
    return {
        "id": named(RESPONSE, run.pk),
        "object": "response",
        "created_at": int(run.created_at.timestamp()),
        "status": status_of(run),
        "background": wishes.background,
        "error": {"code": run.error_code, "message": run.error_detail} if run.error_code else None,
        "incomplete_details": {"reason": "max_output_tokens"} if _is_cut(run) else None,
        "instructions": wishes.instructions,
        "max_output_tokens": run.max_output_tokens,
        "metadata": {},
        "model": run.model_id,
        "output": output(run),
        "parallel_tool_calls": False,
        "previous_response_id": wishes.previous_response_id,
        "store": run.chat.is_kept,
        "temperature": sampling.temperature,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": sampling.top_p,
        "truncation": "disabled",
        "usage": _usage(run) if Status(run.status).is_terminal else None,
    }


def status_of(run: Run) -> str:
    """In OpenAI's words."""
    return "incomplete" if _is_cut(run) else STATUSES[run.status]


def output(run: Run) -> Sequence[Mapping[str, Any]]:
    """The answer as output items: one message, or none."""
    return [item(run, part(run.answer.content))] if run.answer else []


def item(run: Run, *content: Mapping[str, Any]) -> Mapping[str, Any]:
    """The message that a run writes. Its name is the run's: until the end it has no row."""
    unfinished = "incomplete" if Status(run.status).is_terminal else "in_progress"
    status = "completed" if run.status == Status.DONE and not _is_cut(run) else unfinished
    name = named(MESSAGE, run.pk)
    return {"id": name, "type": "message", "status": status, "role": "assistant", "content": [*content]}


def part(text: str) -> Mapping[str, Any]:
    """The text of a message."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _is_cut(run: Run) -> bool:
    return run.status == Status.DONE and run.finish_reason == "length"


def _usage(run: Run) -> Mapping[str, Any]:
    return {
        "input_tokens": run.input_tokens,
        "input_tokens_details": {"cached_tokens": run.cached_tokens},
        "output_tokens": run.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": run.input_tokens + run.output_tokens,
    }
