"""A chat as its template has it, in pieces of which each is encoded by itself."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model said: its text, and the ids in which it came."""

    text: str
    token_ids: Sequence[int]


# Ordinary text, a control token's id, or an answer.
Piece = str | int | Answer


@dataclass(frozen=True, slots=True)
class Rendering:
    """Pieces in order. At a control token a tokenizer cuts in any case, so that what stands before it is one matter."""

    pieces: Sequence[Piece]

    @property
    def controls(self) -> int:
        """How many control tokens it has."""
        return sum(isinstance(piece, int) for piece in self.pieces)

    def answered(self, answer: Answer) -> Rendering:
        """With an answer behind it."""
        return Rendering([*self.pieces, answer])

    def cut(self, controls: int) -> tuple[Rendering, Rendering] | None:
        """What stands before the control token that comes behind so many others, and the rest; None without one."""
        places = [place for place, piece in enumerate(self.pieces) if isinstance(piece, int)]
        if controls >= len(places):
            return None
        return Rendering(self.pieces[: places[controls]]), Rendering(self.pieces[places[controls] :])

    def digest(self, of: bytes) -> bytes:
        """By which the same text with the same control tokens is known, however it is divided; `of` goes in first."""
        found = hashlib.sha256(of)
        for part in self._runs():
            encoded = b"%d" % part if isinstance(part, int) else part.encode()
            found.update(b"%c%d:" % (b"c" if isinstance(part, int) else b"t", len(encoded)) + encoded)
        return found.digest()

    def _runs(self) -> Iterable[str | int]:
        """Control tokens, and all text between two of them as one."""
        text = ""
        for piece in self.pieces:
            if isinstance(piece, int):
                if text:
                    yield text
                yield piece
                text = ""
            else:
                text += piece if isinstance(piece, str) else piece.text
        if text:
            yield text
