"""What the scheduler refuses."""

from __future__ import annotations

from datetime import timedelta
from math import ceil
from typing import Any

from django.utils import timezone


class SchedulerError(Exception):
    """Root of the scheduler's refusals: a stable `code`, a text for people, `data` for programs.

    SchedulerError
    ├── ModelUnknown           no such model, or not for this tier
    ├── PromptExceedsBudget    the prompt alone is more than a full budget holds
    └── Refused                not now: `retry_after_s` says when it may be worth another try
        ├── TooManyRuns        the user has as many live runs as allowed
        ├── BudgetExhausted    what is left of the user's budget does not suffice
        ├── QueueFull          as many runs wait as may: nobody's fault
        ├── TooManyRequests    one credential sends them too fast
        ├── TooManySignIns     one name, or one address, fails too often
        └── TooManyNewKeys     one user makes API keys too fast
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


class PromptExceedsBudget(SchedulerError):
    """The prompt alone is more than a full budget holds: waiting would not help."""

    code = "prompt_exceeds_budget"

    def __init__(self, input_tokens: int, budget_tokens: int) -> None:
        detail = (
            f"With the chat so far this makes {input_tokens} tokens; your full budget of {budget_tokens} "
            "must hold them and at least one of the answer. Start a new chat, or ask for less."
        )
        super().__init__(detail, input_tokens=input_tokens, budget_tokens=budget_tokens)


class Refused(SchedulerError):
    """Not now."""

    code = "refused"

    def __init__(self, detail: str, retry_after_s: int, **data: Any) -> None:
        super().__init__(detail, **data)
        self.retry_after_s = retry_after_s


class TooManyRuns(Refused):
    """The user has as many live runs as allowed."""

    code = "too_many_runs"
    # A short answer's length: nobody can know which of the runs ends first.
    RETRY_AFTER_S = 5

    def __init__(self, limit: int) -> None:
        detail = f"You may have {limit} answers at a time. Wait for one to end, or cancel one."
        super().__init__(detail, self.RETRY_AFTER_S, limit=limit)


class BudgetExhausted(Refused):
    """What is left of the user's budget does not suffice; it will after `wait`, if nothing more is taken."""

    code = "budget_exhausted"

    def __init__(self, wait: timedelta, cost_tokens: int) -> None:
        self.wait = wait
        suffices_at = timezone.now() + wait
        told_at = suffices_at + timedelta(microseconds=999_999)  # the second by which it has come
        detail = (
            f"This may take {cost_tokens} tokens, more than is left of your budget. "
            f"There will be enough at {told_at:%Y-%m-%d %H:%M:%S} UTC. A shorter answer may be had before."
        )
        retry_at = suffices_at.isoformat(timespec="milliseconds")
        super().__init__(detail, ceil(wait.total_seconds()), cost_tokens=cost_tokens, retry_at=retry_at)


class QueueFull(Refused):
    """As many runs wait for the model as may, of all tiers or of the user's."""

    code = "queue_full"

    def __init__(self, retry_after_s: int) -> None:
        # Until something was measured it is a guess.
        seconds = "second" if retry_after_s == 1 else "seconds"
        detail = f"Too many people wait for an answer now. It may be worth another try in {retry_after_s} {seconds}."
        super().__init__(detail, retry_after_s)


class TooManyRequests(Refused):
    """One credential sends requests too fast."""

    code = "too_many_requests"

    def __init__(self, retry_after_s: int) -> None:
        super().__init__("This credential sends requests too fast. Wait as long as Retry-After says.", retry_after_s)


class TooManySignIns(Refused):
    """One name from one address, or one address with any names, failed to sign in too often."""

    code = "too_many_sign_ins"

    def __init__(self, retry_after_s: int) -> None:
        super().__init__("Too many failed sign-ins. Wait a little, then try again.", retry_after_s)


class TooManyNewKeys(Refused):
    """One user makes API keys too fast."""

    code = "too_many_new_keys"

    def __init__(self, retry_after_s: int) -> None:
        super().__init__("You make API keys too fast. Wait as long as Retry-After says.", retry_after_s)
