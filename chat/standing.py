"""How a chat and its owner stand, which decides whether another question may be asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self
from uuid import UUID

from django.db import connection

from chat import problems
from chat.models import Chat, User
from scheduler.errors import TooManyRuns
from scheduler.models import Tier


@dataclass(frozen=True, slots=True)
class Standing:
    """Read in one statement, hence of one moment: an answer is there if and only if its run is no longer live."""

    live_run_id: UUID | None
    last_position: int
    live_runs: int

    # By hand: through the ORM the same cost more than all other queries of a POST together (25 of 80 ms, profiled).
    SQL: ClassVar = """
        SELECT (SELECT id FROM chat_run
                 WHERE chat_id = %(chat)s AND kind = 'reply' AND status IN ('queued', 'streaming')),
               coalesce((SELECT max(position) FROM chat_message WHERE chat_id = %(chat)s), 0),
               (SELECT count(*) FROM chat_run JOIN chat_chat ON chat_chat.id = chat_run.chat_id
                 WHERE owner_id = %(user)s AND kind = 'reply' AND status IN ('queued', 'streaming'))
          FROM chat_chat WHERE id = %(chat)s
    """

    @classmethod
    def of(cls, user: User, chat: Chat) -> Self:
        """How they stand now. Raises `NotFound` when the chat is gone."""
        with connection.cursor() as cursor:
            cursor.execute(cls.SQL, {"user": user.pk, "chat": chat.pk})
            row = cursor.fetchone()
        if row is None:
            raise problems.NotFound
        return cls(*row)

    def check(self, tier: Tier) -> None:
        """Raises `ChatBusy`, `TooManyRuns`. To be sure of it, hold the user's lock."""
        if self.live_run_id:
            raise problems.ChatBusy(run_id=str(self.live_run_id))
        if self.live_runs >= tier.concurrency:
            raise TooManyRuns(tier.concurrency)
