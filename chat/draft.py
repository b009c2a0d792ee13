"""An answer as it comes out of the engine."""

from __future__ import annotations

import re
import time
from datetime import timedelta

from inference.engine import FinishReason, Step
from inference.tokens import Decoder, Tokenizer

# PostgreSQL takes no NUL and UTF-8 no surrogates. One for one, and before anybody sees the text: offsets stay.
UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
REPLACEMENT = "\ufffd"


class Draft:
    """The text so far with its counts; what readers see and what is stored both come from here."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._decoder = Decoder(tokenizer)
        self._pieces: list[str] = []
        self._first_token_at: float | None = None
        self.output_tokens = 0
        self.cached_tokens = 0
        self.finish_reason: FinishReason | None = None

    def add(self, step: Step) -> str:
        """Take a step in; returns the text that it made whole."""
        if self._first_token_at is None and step.token_ids:
            self._first_token_at = time.monotonic()
        self.output_tokens += len(step.token_ids)
        self.cached_tokens = max(self.cached_tokens, step.cached_tokens)
        self.finish_reason = step.finish_reason
        return self._keep(self._decoder.push(step.token_ids))

    def close(self) -> str:
        """Returns what was held back for the rest of a character."""
        return self._keep(self._decoder.flush())

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(self._pieces)

    @property
    def first_token_age(self) -> timedelta | None:
        """How long ago the first token came."""
        if self._first_token_at is None:
            return None
        return timedelta(seconds=time.monotonic() - self._first_token_at)

    def _keep(self, text: str) -> str:
        storable = UNSTORABLE.sub(REPLACEMENT, text)
        self._pieces.append(storable)
        return storable
