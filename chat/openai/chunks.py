"""An answer in the shapes of chat completions: chunks of a stream, or one object."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Self

from django.http import HttpResponse, JsonResponse

from chat.models import Run
from chat.openai import errors
from chat.openai.connection import Events
from chat.openai.ends import TextVoided, failure, finish_reason
from chat.openai.names import COMPLETION, named
from chat.openai.wire import framed, waiting
from chat.problems import Problem
from chat.streaming import frames
from chat.streaming.frames import Told

DONE = b"data: [DONE]\n\n"
CHUNK, WHOLE = "chat.completion.chunk", "chat.completion"


@dataclass(frozen=True, slots=True)
class Completion:
    """What is the same in all that a client is told of one run."""

    id: str
    created: int
    model: str
    with_usage: bool = False

    @classmethod
    def of(cls, run: Run, *, with_usage: bool) -> Self:
        """Of a run that has just been stored; with the counts behind the last chunk where they are asked for."""
        return cls(named(COMPLETION, run.pk), int(run.created_at.timestamp()), run.model_id, with_usage)

    async def chunks(self, events: Events) -> AsyncGenerator[bytes, None]:
        """As server-sent events. What goes wrong behind the first of them is told as one."""
        has_begun = False
        try:
            async with aclosing(events):
                async for told in events:
                    if told.name == "started":
                        if not has_begun:
                            yield self._chunk({"role": "assistant", "content": ""})
                        has_begun = True
                    else:
                        yield self._told(told)
        except Problem as problem:
            yield framed(errors.described(problem))

    async def whole(self, events: Events) -> HttpResponse:
        """As one object. Raises `Problem` for a run that came to no good end."""
        pieces = [""]
        async with aclosing(events):
            async for told in events:
                match told.name:
                    case "delta":
                        pieces.append(told.data["text"])
                    case "reset":
                        pieces = ["".join(pieces)[: told.data["offset"]]]
                    case "done":
                        return JsonResponse(self._object("".join(pieces), told.data))
                    case "cancelled" | "failed":
                        raise failure(told)
        raise TextVoided  # the events end with one of these

    def _told(self, told: Told) -> bytes:
        match told.name:
            case "delta":
                return self._chunk({"content": told.data["text"]})
            case "done":
                usage = framed({**self._common(CHUNK), "choices": [], "usage": usage_of(told.data["usage"])})
                return self._chunk({}, finish_reason(told.data)) + (usage if self.with_usage else b"") + DONE
            case "queued":
                return waiting(told)
            case "reset":
                raise TextVoided
            case "cancelled" | "failed":
                raise failure(told)
            case _:
                return frames.HEARTBEAT

    def _chunk(self, delta: Mapping[str, Any], reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        # Null as long as they are to come, and not there where nobody asked for them.
        usage = {"usage": None} if self.with_usage else {}
        return framed({**self._common(CHUNK), "choices": [choice], **usage})

    def _object(self, text: str, data: Mapping[str, Any]) -> Mapping[str, Any]:
        message = {"role": "assistant", "content": text, "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason(data)}
        return {**self._common(WHOLE), "choices": [choice], "usage": usage_of(data["usage"])}

    def _common(self, kind: str) -> Mapping[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model, "system_fingerprint": None}


def usage_of(usage: Mapping[str, int]) -> Mapping[str, Any]:
    """The counts, by the names they have in completions."""
    return {
        "prompt_tokens": usage["input_tokens"],
        "completion_tokens": usage["output_tokens"],
        "total_tokens": usage["input_tokens"] + usage["output_tokens"],
        "prompt_tokens_details": {"cached_tokens": usage["cached_tokens"]},
    }
