"""What a run's attempts have emitted, read back from where it was left: the stream, and the checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Self

from chat.models import Checkpoint
from inference.streams import Delta, Entry, Reset

Resumptions = Mapping[int, int]


def standing(resumed_at: Resumptions, attempt: int, length: int) -> int:
    """How many of `length` code points that attempts up to `attempt` told later ones went on from.

    One that has not noted where it goes on has told nothing, so that it voids nothing.
    """
    return min([length, *(offset for later, offset in resumed_at.items() if later > attempt)])


@dataclass(frozen=True, slots=True)
class Told:
    """A piece of text as one attempt told it or put it by."""

    attempt: int
    offset: int
    text: str
    token_ids: tuple[int, ...]

    @property
    def end(self) -> int:
        """The offset behind it."""
        return self.offset + len(self.text)


@dataclass(frozen=True, slots=True)
class Emitted:
    """Text from the answer's beginning on, without a gap, the ids it came from, and the attempt that wrote last."""

    text: str = ""
    token_ids: tuple[int, ...] = ()
    attempt: int = 0

    @classmethod
    def in_stream(cls, entries: Iterable[Entry], resumed_at: Resumptions) -> Self:
        """What a stream tells, up to its first gap.

        Not what later attempts did not go on from: a worker that slept may have written into a stream that was lost.
        """
        told: list[Told] = []
        attempt = 0
        for entry in entries:
            if entry.id.attempt != attempt:
                attempt = entry.id.attempt
                _drop_void(told, {later: offset for later, offset in resumed_at.items() if later <= attempt})
            match entry.event:
                case Delta(text, offset, ids) if offset == _end(told):
                    told.append(Told(attempt, offset, text, tuple(ids)))
                case Reset(offset):
                    while _end(told) > offset:
                        told.pop()
        return cls._of(told, resumed_at)

    @classmethod
    def put_by(cls, checkpoints: Iterable[Checkpoint], resumed_at: Resumptions) -> Self:
        """What a run's checkpoints hold."""
        told: list[Told] = []
        for piece in sorted(checkpoints, key=lambda piece: (piece.attempt, piece.offset)):
            while told and told[-1].offset >= piece.offset:
                told.pop()
            if _end(told) > piece.offset:
                # Its ids stay: what is void there stood for none (see `Draft.close`).
                told.append(_cut(told.pop(), piece.offset))
            told.append(Told(piece.attempt, piece.offset, piece.text, tuple(piece.token_ids)))
        return cls._of(told, resumed_at)

    @classmethod
    def _of(cls, told: list[Told], resumed_at: Resumptions) -> Self:
        _drop_void(told, resumed_at)
        ids = tuple(token_id for piece in told for token_id in piece.token_ids)
        return cls("".join(piece.text for piece in told), ids, told[-1].attempt if told else 0)

    def or_later(self, other: Self) -> Self:
        """The one of the two that goes further; either may have lost its end, or not have got it yet."""
        return max(self, other, key=lambda emitted: (emitted.attempt, len(emitted.token_ids)))


def agree(one: str, other: str) -> bool:
    """Whether one text is the other's beginning."""
    return one.startswith(other) or other.startswith(one)


def _end(told: list[Told]) -> int:
    return told[-1].end if told else 0


def _cut(piece: Told, offset: int) -> Told:
    return replace(piece, text=piece.text[: offset - piece.offset])


def _drop_void(told: list[Told], resumed_at: Resumptions) -> None:
    """Drop pieces from the end: a part of one has no ids of its own."""
    while told and standing(resumed_at, told[-1].attempt, told[-1].end) < told[-1].end:
        told.pop()
