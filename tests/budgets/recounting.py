"""Recomputes every bucket and every ledger row from what the database saw of the runs' ends, beside the product."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from typing import Any, cast
from uuid import UUID

from django.db import connection
from redis import Redis

UNITS = 3_600_000

# Also of runs that are deleted in the same transaction.
INSTALL = """
    CREATE TABLE IF NOT EXISTS recount_end (
        run_id uuid, owner_id uuid, model_id text, day date, was_taken boolean, has_failed boolean,
        input_tokens bigint, cached_tokens bigint, output_tokens bigint, charged_tokens bigint, cap_tokens bigint
    );
    CREATE OR REPLACE FUNCTION recount_note() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO recount_end
        SELECT NEW.id, owner_id, NEW.model_id, (NEW.finished_at AT TIME ZONE 'UTC')::date,
               NEW.attempt > 0, NEW.status = 'failed',
               NEW.input_tokens, NEW.cached_tokens, NEW.output_tokens, NEW.charged_tokens, NEW.max_output_tokens
          FROM chat_chat WHERE id = NEW.chat_id AND NEW.kind = 'reply';
        RETURN NULL;
    END
    $$;
    CREATE OR REPLACE TRIGGER recount_end AFTER UPDATE ON chat_run FOR EACH ROW
        WHEN (OLD.finished_at IS NULL AND NEW.finished_at IS NOT NULL) EXECUTE FUNCTION recount_note();
"""
REMOVE = "DROP TRIGGER recount_end ON chat_run; DROP FUNCTION recount_note; DROP TABLE recount_end"


@dataclass(frozen=True)
class End:
    """A run's end as the database saw it."""

    run_id: UUID
    owner_id: UUID
    model_id: str
    day: date
    was_taken: bool
    has_failed: bool
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    charged_tokens: int
    cap_tokens: int

    def owed(self, cached_token_percent: int) -> int:
        """What it is to be charged."""
        if not self.was_taken or (self.has_failed and not self.output_tokens):
            return 0
        hundredths = self.cached_tokens * cached_token_percent
        discounted = hundredths // 100 + (1 if hundredths % 100 else 0)
        return self.input_tokens - self.cached_tokens + discounted + self.output_tokens


def ends() -> list[End]:
    """All of them."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT * FROM recount_end")
        return [End(*row) for row in cursor.fetchall()]


def wrong_ends(found: Iterable[End], cached_token_percent: int) -> Iterator[str]:
    """Charges that are not what their counts say."""
    seen: set[UUID] = set()
    for end in found:
        if end.run_id in seen:
            yield f"run {end.run_id} ended twice"
        seen.add(end.run_id)
        if end.charged_tokens != end.owed(cached_token_percent):
            yield f"{end} was charged {end.charged_tokens} and not {end.owed(cached_token_percent)}"
        if end.charged_tokens > end.input_tokens + end.cap_tokens:
            yield f"{end} was charged more than was reserved"


def wrong_entries(found: Iterable[End]) -> Iterator[str]:
    """Ledger rows that are not the sum of the ends, and sums without a row."""
    expected: dict[tuple[Any, ...], list[int]] = {}
    for end in found:
        if end.was_taken:
            row = expected.setdefault((end.owner_id, end.day, end.model_id), [0] * 5)
            counts = (1, end.input_tokens, end.cached_tokens, end.output_tokens, end.charged_tokens)
            row[:] = [sum(pair) for pair in zip(row, counts, strict=True)]
    kept = _ledger()
    for key in expected.keys() | kept.keys():
        if expected.get(key) != kept.get(key):
            yield f"ledger of {key}: {kept.get(key)} and not {expected.get(key)}"


def _ledger() -> dict[tuple[Any, ...], list[int]]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT user_id, day, model_id, runs, input_tokens, cached_tokens, output_tokens, charged_tokens"
            "  FROM scheduler_ledgerentry"
        )
        return {row[:3]: list(row[3:]) for row in cursor.fetchall()}


def wrong_buckets(found: Iterable[End], users: Iterable[UUID], redis: Redis) -> Iterator[str]:
    """Buckets that miss anything but what was charged, and reservations that are left.

    A token an hour may have come back.
    """
    charged = dict.fromkeys(users, 0)
    for end in found:
        charged[end.owner_id] += end.charged_tokens
    for user_id, tokens in charged.items():
        [key] = [*redis.scan_iter(f"budget:*:{user_id}")] or [b""]
        bucket = {name: int(number) for name, number in cast(dict[bytes, bytes], redis.hgetall(key)).items()}
        missing = bucket.pop(b"missing", 0)
        for name in (b"at", b"per_hour"):
            bucket.pop(name, None)
        if bucket:
            yield f"user {user_id} still has reserved {bucket}"
        if -(-missing // UNITS) != tokens:
            yield f"user {user_id} misses {missing / UNITS} tokens and was charged {tokens}"


def left_reservations(users: Iterable[UUID], redis: Redis) -> Iterator[str]:
    """What the indexes still say of these users."""
    names = {str(user_id) for user_id in users}
    for key in redis.scan_iter("reservations:*"):
        for name in cast(list[bytes], redis.zrange(key, 0, -1)):
            if name.decode().partition(":")[0] in names:
                yield f"index {key!r} still names {name!r}"
