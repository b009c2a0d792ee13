"""What was said in chats that are not kept goes soon after their runs' ends; the runs stay, with their counts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import connection, transaction

from chat import last_words

# The connection that asked has the answer by then; nobody else may have it.
KEPT_AFTER_END = timedelta(seconds=30)
PAGE = 1000
# The prompt's row and the answer's stay, empty, since their run has them.
FORGET = """
    WITH over AS (
        SELECT chat.id FROM chat_chat chat
         WHERE NOT chat.is_kept AND chat.forgotten_at IS NULL
           AND NOT EXISTS (SELECT FROM chat_run WHERE chat_id = chat.id
                              AND (finished_at IS NULL OR finished_at > statement_timestamp() - %(kept)s))
         ORDER BY chat.id LIMIT %(page)s FOR UPDATE SKIP LOCKED),
    held AS (
        SELECT prompt_id AS id FROM chat_run WHERE chat_id IN (SELECT id FROM over)
         UNION SELECT answer_id FROM chat_run WHERE chat_id IN (SELECT id FROM over) AND answer_id IS NOT NULL),
    gone AS (
        DELETE FROM chat_message WHERE chat_id IN (SELECT id FROM over) AND id NOT IN (SELECT id FROM held)),
    emptied AS (
        UPDATE chat_message SET content = '', html = '', html_version = 0, token_ids = NULL
         WHERE id IN (SELECT id FROM held)),
    noted AS (
        UPDATE chat_chat SET forgotten_at = statement_timestamp() WHERE id IN (SELECT id FROM over))
    UPDATE chat_run SET wishes = '{}' WHERE chat_id IN (SELECT id FROM over) RETURNING id
"""


def forget() -> int:
    """Forget what is due, at most a thousand chats; says how many runs they had.

    Their streams go as well. Raises `RedisError` where they cannot, and has forgotten nothing.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        values: dict[str, Any] = {"kept": KEPT_AFTER_END, "page": PAGE}
        cursor.execute(FORGET, values)
        runs: list[UUID] = [run_id for (run_id,) in cursor.fetchall()]
        last_words.drop(runs)
    return len(runs)
