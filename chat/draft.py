"""An answer as it comes out of the engine."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from chat.emitted import Emitted, agree
from chat.stopping import StopStrings
from inference.engine import FinishReason, Step
from inference.tokens import Decoder, Tokenizer

# PostgreSQL takes no NUL and UTF-8 no surrogates. One for one, and before anybody sees the text: offsets stay.
UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
REPLACEMENT = "\ufffd"


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a draft: the text from `offset` on, and the ids behind those that stood for what was before it."""

    offset: int
    text: str
    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Counts:
    """What an answer took so far, and the ids it came in where they are known."""

    output_tokens: int
    cached_tokens: int = 0
    first_token_age: timedelta | None = None
    token_ids: Sequence[int] = ()


class Draft:
    """The text so far with its counts; what readers see and what is stored both come from here.

    It is over at the first of the `stops`, where there are any.
    """

    def __init__(self, tokenizer: Tokenizer, stops: Sequence[str] = ()) -> None:
        self._tokenizer = tokenizer
        self._stop_strings = stops
        self._first_token_at: float | None = None
        self._cached_tokens = 0
        self.has_begun = False
        self.finish_reason: FinishReason | None = None
        self._begin()

    def _begin(self) -> None:
        self._decoder = Decoder(self._tokenizer)
        self._stops = StopStrings(self._stop_strings)
        self._pieces: list[str] = []
        self._put_by_chars = 0
        self._put_by_ids = 0
        self.token_ids: list[int] = []

    def go_on_from(self, emitted: Emitted, saved: Emitted) -> None:
        """Take over, as an empty draft, what earlier attempts emitted, of which `saved` is put by.

        What `close` added to their text is no part of it any more. Where the ids do not make the text it stays empty.
        """
        text = self._keep(self._decoder.push(emitted.token_ids))
        self.token_ids.extend(emitted.token_ids)
        if not emitted.text.startswith(text):
            self._begin()
        elif agree(text, saved.text):
            self._put_by_chars, self._put_by_ids = min(len(text), len(saved.text)), len(saved.token_ids)

    def add(self, step: Step) -> str:
        """Take a step in; returns the text that it made whole."""
        self.has_begun = True
        if self._first_token_at is None and step.token_ids:
            self._first_token_at = time.monotonic()
        self.token_ids.extend(step.token_ids)
        self._cached_tokens = max(self._cached_tokens, step.cached_tokens)
        self.finish_reason = step.finish_reason
        return self._keep(self._decoder.push(step.token_ids))

    def close(self) -> str:
        """Returns what was held back, for the rest of a character or of a stop string."""
        return self._keep(self._decoder.flush()) + self._let_out(self._stops.flush())

    @property
    def is_stopped(self) -> bool:
        """Whether a stop string was met."""
        return self._stops.is_met

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(self._pieces)

    @property
    def counts(self) -> Counts:
        """Its counts, tokens of earlier attempts included."""
        return Counts(len(self.token_ids), self._cached_tokens, self.first_token_age, self.token_ids)

    @property
    def first_token_age(self) -> timedelta | None:
        """How long ago this attempt's first token came."""
        if self._first_token_at is None:
            return None
        return timedelta(seconds=time.monotonic() - self._first_token_at)

    def unsaved(self) -> Piece:
        """What was not put by so far."""
        return Piece(self._put_by_chars, self.text[self._put_by_chars :], tuple(self.token_ids[self._put_by_ids :]))

    def put_by(self, piece: Piece) -> None:
        """What `unsaved` returned is stored; ids without text are kept until there is some."""
        if piece.text:
            self._put_by_chars = piece.offset + len(piece.text)
            self._put_by_ids += len(piece.token_ids)

    def _keep(self, text: str) -> str:
        return self._let_out(self._stops.push(UNSTORABLE.sub(REPLACEMENT, text)))

    def _let_out(self, text: str) -> str:
        self._pieces.append(text)
        return text
