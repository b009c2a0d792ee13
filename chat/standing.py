"""How a chat and its owner stand, which decides whether another question may be asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self
from uuid import UUID

from chat import problems
from chat.models import Chat, User
from chatsite.database.prepared import planned
from scheduler.admission import Waiting
from scheduler.errors import TooManyRuns
from scheduler.models import Model


@dataclass(frozen=True, slots=True)
class Standing:
    """Read in one statement, hence of one moment: an answer is there if and only if its run is no longer live."""

    live_run_id: UUID | None
    last_position: int
    last_question: int
    questions: int
    live_runs: int
    waiting: Waiting

    # By hand: through the ORM the same cost more than all other queries of a POST together (25 of 80 ms, profiled).
    SQL: ClassVar = """
        SELECT chat.id IS NOT NULL,
               (SELECT id FROM chat_run
                 WHERE chat_id = %(chat)s AND kind = 'reply' AND status IN ('queued', 'streaming')),
               coalesce(last.position, 0),
               -- An answer stands right behind its question.
               coalesce(last.position - (last.role = 'assistant')::integer, 0),
               (SELECT count(*) FROM chat_message
                 WHERE chat_id = %(chat)s AND role = 'user' AND replaced_at IS NULL),
               (SELECT count(*) FROM chat_run
                 WHERE user_id = %(user)s AND kind = 'reply' AND status IN ('queued', 'streaming')),
               (SELECT coalesce(json_object_agg(tier_id, runs), '{}')
                  FROM (SELECT tier_id, count(*) AS runs FROM chat_run
                         WHERE kind = 'reply' AND status = 'queued' AND model_id = %(model)s GROUP BY tier_id) waiting),
               (SELECT coalesce(json_object_agg(slug, weight), '{}')
                  FROM scheduler_tier JOIN scheduler_model_tiers ON tier_id = slug WHERE model_id = %(model)s)
          FROM (SELECT 1) one
          LEFT JOIN chat_chat chat ON chat.id = %(chat)s
          LEFT JOIN (SELECT position, role FROM chat_message
                      WHERE chat_id = %(chat)s AND replaced_at IS NULL ORDER BY position DESC LIMIT 1) last ON true
    """

    @classmethod
    def of(cls, user: User, chat: Chat, model: Model) -> Self:
        """How they stand now, and who waits for the model. Raises `NotFound` when the chat was stored and is gone."""
        with planned() as cursor:
            cursor.execute(cls.SQL, {"user": user.pk, "chat": chat.pk, "model": model.pk})
            row = cursor.fetchone()
        assert row is not None
        is_there, live_run_id, position, question, questions, live_runs, runs, weights = row
        if not (is_there or chat._state.adding):
            raise problems.NotFound
        return cls(live_run_id, position, question, questions, live_runs, Waiting(runs, weights))

    def check(self, user: User, *, is_retry: bool = False) -> None:
        """Raises `ChatBusy`, `ChatFull` unless it is a retry, `TooManyRuns`. To be sure, hold the user's lock."""
        if self.live_run_id:
            raise problems.ChatBusy(run_id=str(self.live_run_id))
        # Before what passes with time: waiting would not help.
        if self.questions >= user.tier.chat_turns and not is_retry:
            raise problems.ChatFull(self.questions, user.tier.chat_turns)
        if self.live_runs >= (limit := user.limits.concurrency):
            raise TooManyRuns(limit)
