"""What a product's rows say of the runs of some time: who got how much, who waited how long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import psycopg

LIVE = "SELECT count(*) FROM chat_run WHERE status IN ('queued', 'streaming')"
WAITS = """
    SELECT extract(epoch FROM created_at)::float, extract(epoch FROM coalesce(started_at, 'infinity'))::float
      FROM chat_run WHERE kind = 'reply' AND tier_id = %s
"""
NOW = "SELECT extract(epoch FROM clock_timestamp())::float"
RUNS = """
    SELECT id::text, tier_id, extract(epoch FROM chat_run.created_at)::float, extract(epoch FROM started_at)::float,
           extract(epoch FROM finished_at)::float, charged_tokens, chat_run.input_tokens, chat_run.max_output_tokens
      FROM chat_run WHERE started_at IS NOT NULL AND kind = 'reply' ORDER BY started_at
"""


@dataclass(frozen=True, slots=True)
class Started:
    """A run that a worker took. Times are the database's."""

    id: str
    tier: str
    asked_at: float
    started_at: float
    finished_at: float | None
    charge: int
    input_tokens: int
    cap: int

    @property
    def wait_s(self) -> float:
        """From the question to a slot."""
        return self.started_at - self.asked_at

    @property
    def cost(self) -> int:
        """What was reserved."""
        return self.input_tokens + self.cap


class Rows:
    """Reads them."""

    def __init__(self, database: psycopg.Connection[Any]) -> None:
        self._database = database

    def now(self) -> float:
        """The database's time."""
        return float(self._database.execute(NOW).fetchall()[0][0])

    def live(self) -> int:
        """How many have not ended."""
        return int(self._database.execute(LIVE).fetchall()[0][0])

    def least_waiting(self, tier: str, since: float, until: float) -> int:
        """How many of a tier waited in that time when the fewest did."""
        waits = self._database.execute(WAITS, [tier]).fetchall()
        changes = sorted([(asked, 1) for asked, _ in waits] + [(started, -1) for _, started in waits])
        depths = [(at, depth) for (at, _), depth in zip(changes, accumulate(by for _, by in changes), strict=True)]
        return min((depth for at, depth in depths if since <= at < until), default=0)

    def started(self) -> list[Started]:
        """All, in the order of their starts."""
        return [Started(*row) for row in self._database.execute(RUNS).fetchall()]

    def within(self, since: float, until: float) -> list[Started]:
        """Those that ended in that time."""
        return [run for run in self.started() if run.finished_at and since <= run.finished_at < until]


def shares(runs: Collection[Started]) -> dict[str, float]:
    """Each tier's part of the tokens charged."""
    tokens = Counter[str]()
    for run in runs:
        tokens[run.tier] += run.charge
    return {tier: tokens[tier] / tokens.total() for tier in sorted(tokens, reverse=True)}


@dataclass(frozen=True, slots=True)
class Stretch:
    """Starts in a row, what they were charged, and the time from the start before to the one behind."""

    starts: int = 0
    tokens: int = 0
    seconds: float = 0.0


def longest_stretch(runs: Sequence[Started], tier: str) -> Stretch:
    """The most of each between two starts of the tier's; `runs` in the order of their starts."""
    ours = [n for n, run in enumerate(runs) if run.tier == tier]
    stretches = [
        Stretch(
            behind - before - 1,
            sum(run.charge for run in runs[before + 1 : behind]),
            runs[behind].started_at - runs[before].started_at,
        )
        for before, behind in pairwise(ours)
    ]
    names = ("starts", "tokens", "seconds")
    return Stretch(*(max(getattr(stretch, name) for stretch in stretches) for name in names))


def utilisation(runs: Collection[Started], since: float, until: float, slots: int) -> float:
    """The part of the slots' time that runs held them."""
    busy_s = sum(max(0.0, min(run.finished_at or until, until) - max(run.started_at, since)) for run in runs)
    return busy_s / (slots * (until - since))
