"""To whom a run goes that its room lets go: to the worker whose prefix cache is warm for it, or to all."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Warm:
    """The worker whose prefix cache has the first `tokens` of a run's prompt, as far as is known."""

    worker: str
    tokens: int


class Decision(StrEnum):
    """Why a run went where it did; `docs/decisions/0014` has the reasons."""

    WARM = "warm"  # to its worker: the wait there is worth it
    BUSY = "busy"  # to all: it is not
    SILENT = "silent"  # to all: the worker has not told of itself of late
    LATE = "late"  # to its worker, and then to all: the wait was longer than expected


@dataclass(frozen=True, slots=True)
class Route:
    """What was decided for a run, and by which numbers: None where they were not known.

    `wait_ms` is by how much longer it would wait for its worker than for any, `saving_ms` what its prefix takes to
    compute.
    """

    decision: Decision
    worker: str
    wait_ms: int | None
    saving_ms: int | None

    @property
    def is_sticky(self) -> bool:
        """Whether only its worker shall take it."""
        return self.decision is Decision.WARM


@dataclass(frozen=True, slots=True)
class Report:
    """What a worker tells of itself, by which runs are sent to it or past it.

    `free` is how many more runs it could take, `interval_ms` the mean time between two of its slots' releases while it
    is full, `prefill_us` what its engine takes to compute a token of a prompt; these two are 0 until measured.
    """

    worker: str
    free: int
    interval_ms: float = 0.0
    prefill_us: float = 0.0

    @property
    def told(self) -> list[str | float]:
        """As the scripts take it."""
        return [self.worker, self.free, round(self.interval_ms, 3), round(self.prefill_us, 3)]
