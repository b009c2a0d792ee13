"""What Postgres holds of a run: the twin of its stream, which may have lost entries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from chat.emitted import standing
from inference.streams import Ended


@dataclass(frozen=True, slots=True)
class Piece:
    """A checkpoint's text."""

    attempt: int
    offset: int
    text: str


@dataclass(frozen=True, slots=True)
class Written:
    """A run at one moment: its text so far while `ended` is None, then its message, empty where it left none."""

    attempt: int
    text: str
    resumed_at: Mapping[int, int]
    ended: Ended | None = None


def fold(pieces: Sequence[Piece], resumed_at: Mapping[int, int]) -> str:
    """The text that checkpoints make, in order of attempt and offset, as far as later attempts go on from it."""
    text = ""
    for piece in pieces:
        text = text[: piece.offset] + piece.text
    return text[: standing(resumed_at, pieces[-1].attempt, len(text))] if pieces else ""
