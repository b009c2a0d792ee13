"""Hot contexts: the ids of a chat so far, prompt and answer, so that its next turn tokenises what is new only.

Kept in the streams' Redis for half an hour. One is used where the chat's rendering begins with what has its digest:
another model or version, system prompt, summary or answer has another, and so has a template that changes turns when
others follow. A miss costs a tokenising and changes nothing: rows have the ids of answers too.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, Self, TypeVar, cast
from uuid import UUID

from django.conf import settings
from redis import Redis

from inference.rendering import Answer, Rendering
from scheduler.dispensable import shared
from scheduler.models import Model

T = TypeVar("T")

KEPT_S = 30 * 60
DIGEST_BYTES = 32
COUNT_BYTES = 4


@dataclass(frozen=True, slots=True)
class HotContext:
    """What a rendering begins with, by its digest and number of control tokens, and the ids of that."""

    digest: bytes
    controls: int
    ids: Sequence[int]

    def packed(self) -> bytes:
        """As Redis keeps it."""
        return self.digest + self.controls.to_bytes(COUNT_BYTES) + zlib.compress(array("I", self.ids).tobytes(), 1)

    @classmethod
    def unpacked(cls, stored: bytes) -> Self:
        """The reverse."""
        head = DIGEST_BYTES + COUNT_BYTES
        ids = array("I")
        ids.frombytes(zlib.decompress(stored[head:]))
        return cls(stored[:DIGEST_BYTES], int.from_bytes(stored[DIGEST_BYTES:head]), ids)

    def rest_of(self, rendering: Rendering, model: Model) -> Rendering | None:
        """What comes behind it in a rendering that begins with it; None for any other."""
        divided = rendering.cut(self.controls)
        if divided is None or divided[0].digest(_maker(model)) != self.digest:
            return None
        return divided[1]


class Encoded(Protocol):
    """A rendering with its ids."""

    @property
    def ids(self) -> Sequence[int]:
        """All of it."""

    @property
    def rendering(self) -> Rendering:
        """What they come from."""


def context_key(chat_id: UUID) -> str:
    """Of a chat's hot context."""
    return f"context:{chat_id}"


def encoded(chat_id: UUID, model: Model, rendering: Rendering) -> Sequence[int]:
    """The rendering's ids; of its beginning those that are kept. One round trip, none where Redis is away."""
    kept = read(chat_id)
    rest = kept.rest_of(rendering, model) if kept else None
    if kept and rest:
        return [*kept.ids, *model.tokenizer.encode(rest)]
    return model.tokenizer.encode(rendering)


def read(chat_id: UUID) -> HotContext | None:
    """What is kept of a chat."""
    stored = _ask(lambda redis: cast(bytes | None, redis.get(context_key(chat_id))), otherwise=None)
    try:
        return HotContext.unpacked(stored) if stored else None
    except (zlib.error, ValueError):
        return None  # of another release


def keep(chat_id: UUID, model: Model, prompt: Encoded, answer: Answer) -> None:
    """Keep a prompt and its answer for the chat's next turn; nothing where that could not have the answer's ids."""
    tokenizer = model.tokenizer
    if not (tokenizer.is_byte_level and tokenizer.stands_for(answer.token_ids, answer.text)):
        return
    rendering, ids = prompt.rendering.answered(answer), [*prompt.ids, *answer.token_ids]
    packed = HotContext(rendering.digest(_maker(model)), rendering.controls, ids).packed()
    _ask(lambda redis: bool(redis.set(context_key(chat_id), packed, ex=KEPT_S)), otherwise=False)


def _maker(model: Model) -> bytes:
    """Whose ids they are."""
    return b"%d:" % (model.version_id or 0) + model.tokenizer.fingerprint


def forget(chat_id: UUID) -> None:
    """Drop what is kept of a deleted chat."""
    _ask(lambda redis: bool(redis.unlink(context_key(chat_id))), otherwise=False)


def _ask(question: Callable[[Redis], T], otherwise: T) -> T:
    server = shared(settings.STREAMS_URL)
    return server.ask(lambda: question(server.client), otherwise)
