"""What runs cost, as three witnesses have it: the database's log of bills, the ledger, the buckets with their log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from uuid import UUID

UNITS = 3_600_000  # of a token, in a bucket


@dataclass(frozen=True, slots=True)
class Bill:
    """A run's figures from one moment on; those of a run stand in order, also when its chat was deleted later."""

    run_id: UUID
    user_id: UUID
    tier_id: str
    model_id: str
    attempt: int
    error_code: str
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    charged_tokens: int
    max_output_tokens: int
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None

    @property
    def cost(self) -> int:
        """The most that it may be charged."""
        return self.input_tokens + self.max_output_tokens

    @property
    def page(self) -> Page | None:
        """Where the ledger has it; None for a run that no worker took, or that has not ended."""
        if self.started_at is None or self.finished_at is None:
            return None
        return self.user_id, self.finished_at.astimezone(UTC).date(), self.model_id


Page = tuple[UUID, date, str]


@dataclass(frozen=True, slots=True)
class Sums:
    """A page of the ledger."""

    runs: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    charged_tokens: int = 0

    def and_of(self, bill: Bill) -> Sums:
        """With one run more."""
        return Sums(
            self.runs + 1,
            self.input_tokens + bill.input_tokens,
            self.cached_tokens + bill.cached_tokens,
            self.output_tokens + bill.output_tokens,
            self.charged_tokens + bill.charged_tokens,
        )


@dataclass(frozen=True, slots=True)
class Purse:
    """What a user's full bucket holds, and gains in an hour."""

    budget_tokens: int
    refill_tokens_per_hour: int


@dataclass(frozen=True, slots=True)
class Bucket:
    """A user's bucket: the units that it misses, of which moment, and what is held for runs."""

    missing: int
    at_ms: int
    held: Mapping[UUID, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Held:
    """Tokens were taken out of a bucket and held for a run, and now it misses so many units."""

    user_id: UUID
    run_id: UUID
    tokens: int
    missing: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class GivenBack:
    """A reservation ended, and so many units went back into the bucket."""

    user_id: UUID
    run_id: UUID
    units: int


@dataclass(frozen=True, slots=True)
class Emptied:
    """Redis lost everything: all buckets are full again."""


Operation = Held | GivenBack | Emptied


@dataclass(frozen=True, slots=True)
class Accounts:
    """All that a checker needs to know of what was charged."""

    bills: Sequence[Bill] = ()
    ledger: Mapping[Page, Sums] = field(default_factory=dict)
    purses: Mapping[UUID, Purse] = field(default_factory=dict)
    cached_token_percents: Mapping[str, int] = field(default_factory=dict)  # by model
    deadlines_s: Mapping[str, int] = field(default_factory=dict)  # by tier
    buckets: Mapping[UUID, Bucket] = field(default_factory=dict)
    operations: Sequence[Operation] = ()
    is_log_whole: bool = True  # else the server has shortened it, and `operations` are not all

    @property
    def last_bills(self) -> Mapping[UUID, Bill]:
        """How each run came out."""
        return {bill.run_id: bill for bill in self.bills}
