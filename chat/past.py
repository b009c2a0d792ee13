"""What has been said in a chat, as far as prompts need it: the latest summary, and the messages behind it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self
from uuid import UUID

from chat.models import Role, Summary
from chatsite.database.prepared import planned

LINES = """
    SELECT position, role, content, token_ids FROM chat_message
     WHERE chat_id = %(chat)s AND replaced_at IS NULL
       AND position >= %(start)s AND position < coalesce(%(before)s, 2147483647)
     ORDER BY position
"""


@dataclass(frozen=True, slots=True)
class Line:
    """A message as prompts need it."""

    position: int
    role: str
    content: str
    token_ids: Sequence[int] | None = None


@dataclass(frozen=True, slots=True)
class Epoch:
    """A summary as prompts need it; 0 is none. A worker of a model has `warm_tokens` of what begins with it cached."""

    number: int = 0
    upto: int = 0
    text: str = ""
    model: str = ""
    version: int | None = None
    worker: str = ""
    warm_tokens: int = 0


@dataclass(frozen=True, slots=True)
class LastReply:
    """The run before: what its prompt held, and the worker that has it and its answer in its prefix cache."""

    model: str
    version: int | None
    epoch: int
    first_position: int
    worker: str
    tokens: int
    system: str | None = None


@dataclass(frozen=True, slots=True)
class Past:
    """A chat up to and with a question: the latest epoch, the last reply, and the lines that are in neither."""

    chat_id: UUID
    lines: Sequence[Line]
    epoch: Epoch = field(default_factory=Epoch)
    last: LastReply | None = None
    system: str | None = None  # in place of the model's system prompt; the last reply's, unless told

    # One statement for a POST. By hand: through the ORM it would be three.
    SQL: ClassVar = """
        SELECT summary.epoch, summary.upto, summary.text, coalesce(maker.model_id, ''), maker.version_id,
               coalesce(maker.worker, ''), summary.warm_tokens,
               last.model_id, last.version_id, last.epoch, last.first_position, last.worker,
               last.input_tokens + last.output_tokens, last.wishes ->> 'system'
          FROM (SELECT 1) one
          LEFT JOIN LATERAL (SELECT * FROM chat_summary WHERE chat_id = %(chat)s ORDER BY epoch DESC LIMIT 1) summary
                 ON true
          LEFT JOIN chat_run maker ON maker.id = summary.run_id
          LEFT JOIN LATERAL (SELECT * FROM chat_run WHERE chat_id = %(chat)s AND kind = 'reply'
                              ORDER BY id DESC LIMIT 1) last
                 ON true
    """

    @classmethod
    def of(cls, chat_id: UUID, model: str, before: int | None = None) -> Self:
        """All of it, or what stands before a position. Two queries: what came between them is in neither.

        Lines begin behind the summary, and where the last prompt to the same model began: it was too long otherwise.
        Without a model they are all behind the summary: see `as_for`.
        """
        with planned() as cursor:
            names: dict[str, Any] = {"chat": chat_id}
            cursor.execute(cls.SQL, names)
            row = cursor.fetchone()
        assert row is not None
        epoch = Epoch() if row[0] is None else Epoch(*row[:7])
        last = None if row[7] is None else LastReply(*row[7:])
        start = _start(epoch, last, model)
        return cls(chat_id, lines(chat_id, start, before), epoch, last, last.system if last else None)

    def as_for(self, model: str) -> Past:
        """What was read for no model in particular, as it would have been read for this one."""
        start = _start(self.epoch, self.last, model)
        return replace(self, lines=[line for line in self.lines if line.position >= start])

    @property
    def end(self) -> int:
        """The last message's position, be it in a line or under the summary; 0 where nothing was said."""
        return max(self.epoch.upto, self.lines[-1].position if self.lines else 0)

    @property
    def position(self) -> int:
        """The question's."""
        return self.lines[-1].position

    def asked(self, content: str) -> Past:
        """With a new question behind it."""
        return self.said([(Role.USER, content)])

    def said(self, messages: Iterable[tuple[Role, str]]) -> Past:
        """With new messages behind it."""
        new = [Line(position, *message) for position, message in enumerate(messages, self.end + 1)]
        return replace(self, lines=[*self.lines, *new])


def epoch(chat_id: UUID, number: int) -> Epoch:
    """That epoch of a chat. Raises `Summary.DoesNotExist` when it was deleted."""
    if not number:
        return Epoch()
    summary = Summary.objects.get(chat=chat_id, epoch=number)
    return Epoch(summary.epoch, summary.upto, summary.text)


def lines(chat_id: UUID, start: int, before: int | None = None) -> list[Line]:
    """Standing messages of a chat from one position on, before another."""
    names: dict[str, Any] = {"chat": chat_id, "start": start, "before": before}
    with planned() as cursor:
        cursor.execute(LINES, names)
        return [Line(*row) for row in cursor.fetchall()]


def _start(epoch: Epoch, last: LastReply | None, model: str) -> int:
    is_same = last and (last.model, last.epoch) == (model, epoch.number)
    return max(epoch.upto + 1, last.first_position) if last and is_same else epoch.upto + 1


def starts(of: Iterable[Line]) -> list[int]:
    """Where a prompt may begin: at questions."""
    return [line.position for line in of if line.role == Role.USER]
