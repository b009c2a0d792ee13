"""Rows past the product: what a site would have gathered in months, in seconds."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from bench.serving.site import NEW_CHATS, Site
from tests.stack.stack import MODEL

TOKENS = 12
TURNS = """
    INSERT INTO chat_message (id, chat_id, position, role, content, token_count)
    SELECT gen_random_uuid(), chat, number, CASE number %% 2 WHEN 1 THEN 'user' ELSE 'assistant' END,
           'a few words, as people say them, number ' || number, %(tokens)s
      FROM unnest(%(chats)s::uuid[]) AS chat, generate_series(1, %(count)s) AS number
"""
WAITING = """
    WITH owner AS (
        SELECT user_id, tier_id FROM chat_apikey JOIN chat_user ON chat_user.id = user_id
         WHERE digest = encode(sha256(%(key)s::bytea), 'hex')
    ), chat AS (
        INSERT INTO chat_chat (id, title, owner_id)
        SELECT gen_random_uuid(), 'one that waits', user_id FROM owner, generate_series(1, %(count)s) RETURNING id
    ), prompt AS (
        INSERT INTO chat_message (id, chat_id, position, role, content, token_count)
        SELECT gen_random_uuid(), id, 1, 'user', 'Hello', 1 FROM chat RETURNING id, chat_id
    )
    INSERT INTO chat_run (id, kind, status, attempt, worker, max_output_tokens, input_tokens, cached_tokens,
                          output_tokens, finish_reason, error_code, error_detail, chat_id, model_id, prompt_id, tier_id)
    SELECT gen_random_uuid(), 'reply', 'queued', 0, '', 16, 10, 0, 0, '', '', '', chat_id, %(model)s, prompt.id, tier_id
      FROM prompt, owner
"""
ANALYSE = "ANALYZE chat_chat, chat_message, chat_run"


def give_chats(site: Site, key: str, count: int) -> Sequence[str]:
    """More chats for one user; returns their ids."""
    found = site.sql(NEW_CHATS, {"key": key.encode(), "count": count})
    site.sql(ANALYSE)
    return [chat for (chat,) in found]


def fill_chats(site: Site, chats: Sequence[str], count: int) -> None:
    """So many messages in each of them."""
    site.sql(TURNS, {"chats": [UUID(chat) for chat in chats], "count": count, "tokens": TOKENS})
    site.sql(ANALYSE)


def crowd_with_runs(site: Site, count: int) -> None:
    """More runs that wait, of one user, of which the broker does not know yet."""
    site.sql(WAITING, {"key": site.keys[-1].encode(), "count": count, "model": MODEL})
    site.sql(ANALYSE)
