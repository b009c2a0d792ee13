"""Each user's token budget: a bucket in Redis that fills at a rate, by Redis' clock unless another is given.

What a run may cost at most is reserved before it may wait, what it did cost is settled at its end, exactly once. Lost
with Redis: buckets start full again, and what was reserved is forgotten. The ledger (scheduler/models/ledger.py) is the
record. The algorithm is the token bucket of RFC 2697, section 3, with one rate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import cast
from uuid import UUID

from scheduler.dispensable import DispensableRedis
from scheduler.errors import BudgetExhausted
from scheduler.limits import Limits

LUA = Path(__file__).parent / "lua"
BUCKET = (LUA / "bucket.lua").read_text()
RESERVE = BUCKET + (LUA / "reserve.lua").read_text()
LEVEL = BUCKET + (LUA / "level.lua").read_text()
SETTLE = (LUA / "settle.lua").read_text()

# As run streams have: a cluster can hold them, and what one script touches lies in one slot.
SHARDS = 64
# At a token an hour a large budget takes longer to fill than there are dates for.
CENTURY_MS = 100 * 365 * 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class Level:
    """What a budget holds, and in how many seconds it is full if nothing more is taken: a century at most."""

    tokens: int
    full_in_s: float


@dataclass(frozen=True, slots=True)
class Reservation:
    """Tokens that are held for a user's run."""

    user_id: UUID
    run_id: UUID

    def __str__(self) -> str:
        return f"{self.user_id}:{self.run_id}"

    @classmethod
    def parse(cls, name: str) -> Reservation:
        """Read `<user id>:<run id>`."""
        user_id, _, run_id = name.partition(":")
        return cls(UUID(user_id), UUID(run_id))

    @property
    def keys(self) -> list[str]:
        """The user's bucket, and the index of what is reserved in the same shard."""
        return [bucket_key(self.user_id), index_key(_shard(self.user_id))]


def bucket_key(user_id: UUID) -> str:
    """The key of a user's bucket."""
    return f"budget:{{{_shard(user_id):02}}}:{user_id}"


def index_key(shard: int) -> str:
    """The key of a shard's index: reservations by the time when they were made."""
    return f"reservations:{{{shard:02}}}"


class TokenBuckets:
    """The buckets of all users; a round trip a call. While Redis is away nothing is counted, and everything passes.

    `clock` tells milliseconds since the epoch; without one it is the server's, which all processes share.
    """

    def __init__(self, redis: DispensableRedis, clock: Callable[[], int] | None = None) -> None:
        self._redis = redis
        self._clock = clock
        self._reserve = redis.script(RESERVE)
        self._settle = redis.script(SETTLE)
        self._level = redis.script(LEVEL)

    def reserve(self, reservation: Reservation, tokens: int, limits: Limits) -> None:
        """Hold `tokens`, at most what a full budget has, for a run. Safe to repeat.

        Raises `BudgetExhausted`, which says when there will be enough; nothing has changed then.
        """
        amounts: list[str | int] = [*self._terms(limits), str(reservation.run_id), tokens, str(reservation)]
        wait_ms = self._redis.ask(lambda: cast(int, self._reserve(keys=reservation.keys, args=amounts)), otherwise=0)
        if wait_ms:
            raise BudgetExhausted(timedelta(milliseconds=min(wait_ms, CENTURY_MS)), tokens)

    def settle(self, reservation: Reservation, charged_tokens: int) -> bool:
        """Give back what was reserved beyond the charge; False when nothing is reserved any more, or Redis is away."""
        amounts: list[str | int] = [str(reservation.run_id), charged_tokens, str(reservation)]
        return self._redis.ask(lambda: bool(self._settle(keys=reservation.keys, args=amounts)), otherwise=False)

    def level(self, user_id: UUID, limits: Limits) -> Level:
        """What is left of a user's budget."""
        full = [limits.budget_tokens, 0]
        keys = [bucket_key(user_id)]
        tokens, full_in_ms = self._redis.ask(
            lambda: cast(list[int], self._level(keys=keys, args=self._terms(limits))), otherwise=full
        )
        return Level(tokens, min(full_in_ms, CENTURY_MS) / 1000)

    def reserved_before(self, age: timedelta) -> list[Reservation]:
        """What has been reserved for longer than that, of all users; two round trips."""
        return self._redis.ask(lambda: list(self._reserved_before(age)), otherwise=[])

    def _reserved_before(self, age: timedelta) -> Iterable[Reservation]:
        until_ms = self._now_ms() - age // timedelta(milliseconds=1)
        pipeline = self._redis.client.pipeline(transaction=False)
        for shard in range(SHARDS):
            pipeline.zrangebyscore(index_key(shard), "-inf", until_ms)
        for names in cast(list[list[bytes]], pipeline.execute()):
            yield from (Reservation.parse(name.decode()) for name in names)

    def _terms(self, limits: Limits) -> list[str | int]:
        return [*_rate(limits), "" if self._clock is None else self._clock()]

    def _now_ms(self) -> int:
        if self._clock is not None:
            return self._clock()
        seconds, microseconds = self._redis.client.time()
        return seconds * 1000 + microseconds // 1000


def _rate(limits: Limits) -> list[int]:
    since_ms = int(limits.refill_since.timestamp() * 1000) if limits.refill_since else 0
    return [limits.budget_tokens, limits.refill_tokens_per_hour, since_ms]


def _shard(user_id: UUID) -> int:
    return user_id.int % SHARDS
