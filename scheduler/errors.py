"""What the scheduler refuses."""

from __future__ import annotations

from typing import Any


class SchedulerError(Exception):
    """Root of the scheduler's refusals: a stable `code`, a text for people, `data` for programs.

    SchedulerError
    ├── ModelUnknown       no such model, or not for this tier
    └── Refused            not now: `retry_after_s` says when it may be worth another try
        └── TooManyRuns    the user has as many live runs as the tier allows
    """

    code = "scheduler_error"

    def __init__(self, detail: str, **data: Any) -> None:
        super().__init__(detail)
        self.detail = detail
        self.data = data


class ModelUnknown(SchedulerError):
    """No such model, or none that this tier may use: which of the two is not told."""

    code = "model_unknown"

    def __init__(self, slug: str | None) -> None:
        detail = "There is no default model for your tier." if slug is None else "There is no such model for your tier."
        super().__init__(detail, model=slug)


class Refused(SchedulerError):
    """Not now."""

    code = "refused"

    def __init__(self, detail: str, retry_after_s: int, **data: Any) -> None:
        super().__init__(detail, **data)
        self.retry_after_s = retry_after_s


class TooManyRuns(Refused):
    """The user has as many live runs as the tier allows."""

    code = "too_many_runs"
    # A short answer's length: nobody can know which of the runs ends first.
    RETRY_AFTER_S = 5

    def __init__(self, limit: int) -> None:
        detail = f"Your tier allows {limit} answers at a time. Wait for one to end."
        super().__init__(detail, self.RETRY_AFTER_S, limit=limit)
