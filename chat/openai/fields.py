"""Which fields of OpenAI's requests are supported, ignored and refused: docs/openai.md shows these tables."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from django.conf import settings


class Support(StrEnum):
    """What becomes of a field."""

    SUPPORTED = "supported"
    IGNORED = "ignored"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Field:
    """One field, and a note on it. A refused one passes where it asks for nothing, as null and `harmless` values do."""

    name: str
    support: Support
    note: str
    harmless: tuple[Any, ...] = ()

    def refuses(self, value: Any) -> bool:
        """Whether a request with that value cannot be served."""
        # By type as well: True is 1 in Python.
        passes = value is None or any(value == each and type(value) is type(each) for each in self.harmless)
        is_passed_over = self.name == "tools" and settings.IGNORE_TOOLS
        return self.support is Support.REFUSED and not (passes or is_passed_over)

    @property
    def refusal(self) -> str:
        """Why."""
        return f"`{self.name}` is not supported here: {self.note}"


def _supported(name: str, note: str) -> Field:
    return Field(name, Support.SUPPORTED, note)


def _ignored(name: str, note: str) -> Field:
    return Field(name, Support.IGNORED, note)


def _refused(name: str, note: str, *harmless: Any) -> Field:
    return Field(name, Support.REFUSED, note, harmless)


COMPLETION = (
    _supported("messages", "roles system, developer, user and assistant; text, or parts of type text"),
    _supported("model", "a slug of `GET /v1/models`"),
    _supported("max_completion_tokens", "lowered to what tier, model, window and budget allow"),
    _supported("max_tokens", "the same by its old name"),
    _supported("temperature", "0 to 2"),
    _supported("top_p", "0 to 1"),
    _supported("stop", "a string or up to four, of 1 to 256 characters"),
    _supported("seed", "a whole number of 64 bits; the same answer is likely, not certain"),
    _supported("presence_penalty", "-2 to 2"),
    _supported("frequency_penalty", "-2 to 2"),
    _supported("stream", "server-sent events; while the run waits they are comments"),
    _supported("stream_options", "`include_usage`; other keys are ignored"),
    _supported("store", "true keeps the conversation among your chats; else nothing of it is kept"),
    _refused("n", "one answer a request", 1),
    _refused("tools", "the models have no tools; `IGNORE_TOOLS` of the operator lets them pass unused", []),
    _refused("tool_choice", "the models have no tools", "none", "auto"),
    _refused("functions", "the models have no tools", []),
    _refused("function_call", "the models have no tools", "none", "auto"),
    _refused("response_format", "answers are text", {"type": "text"}),
    _refused("logprobs", "probabilities are not kept", False),
    _refused("top_logprobs", "probabilities are not kept", 0),
    _refused("logit_bias", "tokens have no bias", {}),
    _refused("modalities", "answers are text", ["text"]),
    _refused("audio", "answers are text"),
    _refused("web_search_options", "the models do not search"),
    _ignored("user", "who asks is known by the key"),
    _ignored("safety_identifier", "who asks is known by the key"),
    _ignored("metadata", "not kept"),
    _ignored("parallel_tool_calls", "there are no tools"),
    _ignored("prediction", "of no use to the engine"),
    _ignored("prompt_cache_key", "the prefix cache finds what is the same by itself"),
    _ignored("prompt_cache_retention", "the prefix cache keeps what it has room for"),
    _ignored("reasoning_effort", "the models do not differ by it"),
    _ignored("verbosity", "the models do not differ by it"),
    _ignored("service_tier", "your tier is your account's"),
    _ignored("prompt_cache_options", "the prefix cache finds what is the same by itself"),
    _ignored("moderation", "nothing is moderated"),
)

RESPONSE = (
    _supported("input", "a text, or message items of roles system, developer, user and assistant with text"),
    _supported("model", "a slug of `GET /v1/models`; the one before where a response goes on from another"),
    _supported("instructions", "before everything else; of one response, not of those that go on from it"),
    _supported("max_output_tokens", "lowered to what tier, model, window and budget allow"),
    _supported("temperature", "0 to 2"),
    _supported("top_p", "0 to 1"),
    _supported("stream", "server-sent events, numbered"),
    _supported("background", "answered at once, read later; needs `store`"),
    _supported("store", "true unless told: the conversation stands among your chats, and can be read and gone on from"),
    _supported("previous_response_id", "goes on in its chat; in a copy of it where something was said there since"),
    _refused("tools", "the models have no tools; `IGNORE_TOOLS` of the operator lets them pass unused", []),
    _refused("tool_choice", "the models have no tools", "none", "auto"),
    _refused("text", "answers are text", {}, {"format": {"type": "text"}}),
    _refused("top_logprobs", "probabilities are not kept", 0),
    _refused("conversation", "use `previous_response_id`"),
    _refused("prompt", "there are no stored prompts"),
    _refused("context_management", "a long chain of responses goes on with a summary by itself", []),
    _refused("image", "answers are text"),
    _ignored("include", "there is nothing of what it may name"),
    _ignored("metadata", "not kept"),
    _ignored("max_tool_calls", "there are no tools"),
    _ignored("parallel_tool_calls", "there are no tools"),
    _ignored("prompt_cache_key", "the prefix cache finds what is the same by itself"),
    _ignored("prompt_cache_retention", "the prefix cache keeps what it has room for"),
    _ignored("reasoning", "the models do not differ by it"),
    _ignored("safety_identifier", "who asks is known by the key"),
    _ignored("service_tier", "your tier is your account's"),
    _ignored("stream_options", "nothing of it is needed"),
    _ignored("background_options", "nothing of it is needed"),
    _ignored("prompt_cache_options", "the prefix cache finds what is the same by itself"),
    _ignored("moderation", "nothing is moderated"),
    _ignored("access_programs", "your tier is your account's"),
    _ignored("truncation", "a long chain of responses goes on with a summary; one request never loses a message"),
    _ignored("user", "who asks is known by the key"),
)
