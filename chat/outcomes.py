"""How a run ended, by what was written of it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from chat import endings
from chat.draft import Counts, Draft
from chat.models import CANCELLED, Outcome, Run, Status
from scheduler import prices


def done(run: Run, draft: Draft) -> Outcome:
    """The model came to its end, or to the cap."""
    return Outcome(Status.DONE, finish_reason=str(draft.finish_reason), **_counted(run, draft.counts))


def cancelled(run: Run, counts: Counts) -> Outcome:
    """Somebody wanted no more of it."""
    return Outcome(Status.CANCELLED, finish_reason=CANCELLED, **_counted(run, counts))


def failed(run: Run, counts: Counts, code: str) -> Outcome:
    """Something went wrong; `code` is one of `endings.DETAILS`. Before the first word it costs nothing."""
    counted = _counted(run, counts)
    if not counts.output_tokens:
        counted["charged_tokens"] = 0
    return Outcome(
        Status.FAILED,
        finish_reason="error",
        error_code=code,
        error_detail=endings.DETAILS[code],
        **counted,
    )


def worker_lost(run: Run, counts: Counts) -> Outcome:
    """Too many workers died with it."""
    return failed(run, counts, endings.WORKER_LOST)


def _counted(run: Run, counts: Counts) -> dict[str, Any]:
    # A later attempt finds the words of an earlier one in the prefix cache, which are no input.
    cached = min(counts.cached_tokens, run.input_tokens)
    charge = prices.charge(run.input_tokens, cached, counts.output_tokens, run.model.cached_token_percent)
    charged = charge if run.kind == Run.Kind.REPLY else 0
    return {**asdict(counts), "input_tokens": run.input_tokens, "cached_tokens": cached, "charged_tokens": charged}
