"""What was seen of a world: by its users, by its database, and of what is left in it at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from inference.streams import Entry
from tests.faults.accounts import Accounts
from tests.sse_client import Event


@dataclass(frozen=True, slots=True)
class Row:
    """A run as its row has it at the end."""

    id: UUID
    status: str
    attempt: int
    hand_backs: int
    answer_id: UUID | None
    finish_reason: str
    error_code: str
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    resumed_at: Mapping[str, int]
    question: str
    created_at: datetime
    finished_at: datetime | None
    cancel_requested_at: datetime | None = None
    worker: str = ""
    charged_tokens: int = 0

    @property
    def usage(self) -> dict[str, int]:
        """As its terminal event has it."""
        names = ("input_tokens", "cached_tokens", "output_tokens", "charged_tokens")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, slots=True)
class Change:
    """A run's status and attempt, from one moment on; those of a run stand in order."""

    run_id: UUID
    status: str
    attempt: int
    worker: str
    at: datetime


class Verdict(StrEnum):
    """How a request went, all its tries together."""

    SERVED = "served"  # 2xx
    REFUSED = "properly refused"  # problem+json with a code; Retry-After where it is 429 or 503
    LOST = "not answered, nor soon when repeated"  # refused, cut off or too slow, for `client.REPEAT_WITHIN_S`
    WRONG = "answered wrongly"  # anything else, such as a 500


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a user's, which the user repeats while no answer comes."""

    what: str
    verdict: Verdict
    tries: int
    took_s: float
    said: str = ""  # what the last answer was, where it was not 2xx


@dataclass(frozen=True, slots=True)
class Asked:
    """A question that was taken (202), by the key it was sent with."""

    key: str
    run_id: UUID


@dataclass(slots=True)
class Read:
    """What one reader was told of one run."""

    run_id: UUID
    text: str = ""
    events: Sequence[Event] = ()
    broke: str = ""  # what did not fit what the reader had
    gave_up: bool = False  # the end never came
    longest_pause_s: float = 0.0

    @property
    def ended_as(self) -> str:
        """The last event's name."""
        return self.events[-1].name if self.events else ""


@dataclass(frozen=True, slots=True)
class Gauges:
    """What must be nothing when all is over."""

    live_runs: int = 0
    broker_keys: Sequence[str] = ()  # of rooms and queues
    workers: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # in-hand, running, waiting
    reservations: Sequence[str] = ()  # in buckets or in their index


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a world promises in numbers."""

    max_attempts: int = 5
    wait_s: float = 60.0  # in a room, with whatever is away meanwhile
    attempt_s: float = 60.0  # lease, reaper's period, longest run

    def run_s(self, attempts: int) -> float:
        """How long a run may take."""
        return self.wait_s + attempts * self.attempt_s


@dataclass(slots=True)
class Records:
    """Everything that a checker needs to know."""

    bounds: Bounds = field(default_factory=Bounds)
    rows: Sequence[Row] = ()
    changes: Sequence[Change] = ()
    messages: Mapping[UUID, str] = field(default_factory=dict)
    streams: Mapping[UUID, Sequence[Entry]] = field(default_factory=dict)
    reads: Sequence[Read] = ()
    asked: Sequence[Asked] = ()
    discarded: Set[UUID] = frozenset()  # runs of chats that their users deleted
    requests: Sequence[Request] = ()
    gauges: Gauges = field(default_factory=Gauges)
    accounts: Accounts = field(default_factory=Accounts)


@dataclass(frozen=True, slots=True)
class Violation:
    """An invariant that does not hold of something."""

    invariant: str
    about: str
    what: str
    evidence: Any = None
