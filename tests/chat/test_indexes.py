"""The lists are read off an index, in its order, in tables of a size where Postgres has the choice."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.db import connection
from django.db.models import Q, QuerySet

from chat.admin.filters import AgeFilter
from chat.models import Chat, Message, Run, Status, User
from chat.standing import Standing
from scheduler.models import Model

# 6,000 chats, half of them Alice's, 600 with ten messages and ended runs of another model, and a long one. A hundred
# wait, ten of them Alice's and for her model. The indexes are built anew: where other tests had grown them, the rows
# were gone and the pages were not, and the plan was another one.
CROWD = """
INSERT INTO chat_chat (id, owner_id, title, created_at, updated_at)
SELECT gen_random_uuid(), CASE n %% 2 WHEN 0 THEN %(alice)s::uuid ELSE %(bob)s::uuid END, '',
       now(), now() - n * interval '1 minute'
  FROM generate_series(1, 6000) n;

INSERT INTO chat_message (id, chat_id, position, role, content, token_count, created_at)
SELECT gen_random_uuid(), chat_chat.id, n, CASE n %% 2 WHEN 1 THEN 'user' ELSE 'assistant' END, 'x', 1, now()
  FROM (SELECT id FROM chat_chat WHERE id <> %(chat)s ORDER BY updated_at DESC LIMIT 600) chat_chat,
       generate_series(1, 10) n;

INSERT INTO chat_message (id, chat_id, position, role, content, token_count, created_at)
SELECT gen_random_uuid(), %(chat)s, n, 'user', 'x', 1, now() FROM generate_series(1, 1000) n;

INSERT INTO chat_run (id, chat_id, prompt_id, kind, model_id, tier_id, status, attempt, worker, max_output_tokens,
                      input_tokens, cached_tokens, output_tokens, finish_reason, error_code, error_detail, created_at,
                      finished_at)
SELECT gen_random_uuid(), chat_id, id, 'reply', %(other)s, 'free', 'cancelled', 1, '', 1, 1, 0, 0, '', '', '', now(),
       now()
  FROM chat_message WHERE role = 'user' AND chat_id <> %(chat)s;

INSERT INTO chat_run (id, chat_id, prompt_id, kind, model_id, tier_id, status, attempt, worker, max_output_tokens,
                      input_tokens, cached_tokens, output_tokens, finish_reason, error_code, error_detail, created_at)
SELECT gen_random_uuid(), chat_id, id, 'reply', CASE WHEN n <= 10 AND owner_id = %(alice)s THEN %(model)s
                                                     ELSE %(other)s END, 'free', 'queued', 0, '', 1, 1, 0, 0, '', '',
       '', now()
  FROM (SELECT chat_message.id, chat_id, owner_id, row_number() OVER (PARTITION BY owner_id ORDER BY chat_id) AS n
          FROM chat_message JOIN chat_chat ON chat_id = chat_chat.id
         WHERE position = 9 AND chat_id <> %(chat)s) last
 WHERE n <= CASE owner_id WHEN %(alice)s THEN 10 ELSE 90 END;

REINDEX TABLE chat_chat; REINDEX TABLE chat_message; REINDEX TABLE chat_run;
ANALYZE chat_chat; ANALYZE chat_message; ANALYZE chat_run;
"""


@pytest.fixture(autouse=True)
def _crowd(alice: User, bob: User, model: Model, chat: Chat) -> None:
    other = Model.objects.create(slug="other", context_window=99)
    with connection.cursor() as cursor:
        names: dict[str, Any] = {
            "alice": alice.pk,
            "bob": bob.pk,
            "model": model.slug,
            "other": other.slug,
            "chat": chat.pk,
        }
        cursor.execute(CROWD, names)


def plan(rows: QuerySet[Any]) -> str:
    """How Postgres reads them; fails where it scans a table or sorts."""
    found = rows.explain()
    assert "Seq Scan" not in found
    assert "Sort" not in found
    return found


def test_chats_by_recency(alice: User) -> None:
    assert "chat_by_recency" in plan(Chat.objects.visible_to(alice).order_by("-updated_at", "-id")[:51])


def test_chats_by_recency_from_a_cursor_on(alice: User) -> None:
    last = Chat.objects.visible_to(alice).order_by("-updated_at")[100]
    behind = Q(updated_at__lt=last.updated_at) | Q(id__lt=last.pk)
    rows = Chat.objects.visible_to(alice).filter(behind, updated_at__lte=last.updated_at)

    assert "updated_at <=" in plan(rows.order_by("-updated_at", "-id")[:51]).split("Filter")[0]


def test_messages_of_a_chat_from_the_newest_back(chat: Chat) -> None:
    assert "one_message_a_position" in plan(
        chat.messages.standing().filter(position__lt=500).order_by("-position")[:51]
    )


def test_the_live_runs() -> None:
    assert "run_live" in plan(Run.objects.live().order_by())


def test_those_that_wait_in_the_order_of_their_age() -> None:
    waiting = Run.objects.filter(status=Status.QUEUED)
    behind = waiting.order_by("pk")[10]

    assert "run_queued" in plan(waiting.filter(pk__gt=behind.pk).order_by("pk")[:10])


def test_the_live_reply_of_each_chat_in_a_list(alice: User) -> None:
    rows = Chat.objects.visible_to(alice).with_live_run().order_by("-updated_at", "-id")[:51]

    assert re.search("one_live_reply_a_chat|run_by_chat", plan(rows))  # the first in chats of many runs


def test_the_runs_of_a_page_of_messages() -> None:
    ids = list(Message.objects.values_list("pk", flat=True)[:50])

    found = plan(Run.objects.filter(Q(prompt__in=ids) | Q(answer__in=ids)).order_by())

    assert "chat_run_prompt_id" in found
    assert "chat_run_answer_id" in found


def test_how_a_chat_and_its_owner_stand(alice: User, chat: Chat, model: Model) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {Standing.SQL}", {"user": alice.pk, "chat": chat.pk, "model": model.pk})
        found = "\n".join(line for (line,) in cursor.fetchall())

    assert "Seq Scan on chat_run" not in found
    assert "live_reply_by_user" in found
    assert "reply_waiting" in found


def test_runs_that_an_operator_looks_for_by_age() -> None:
    def found(choice: str, runs: QuerySet[Run]) -> str:
        chosen = AgeFilter(None, {"age": [choice]}, Run, None)  # type: ignore[arg-type]  # needs neither
        return plan(chosen.queryset(None, runs)[:100])  # type: ignore[arg-type]  # likewise

    assert re.search("run_live|run_queued", found("live-minute", Run.objects.order_by()))
    assert re.search(r"Index Cond: \(\(?id >= ", found("asked-hour", Run.objects.order_by("-id")))
