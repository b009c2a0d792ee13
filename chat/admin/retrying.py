"""Another run in the place of one that came to nothing, which an operator wants for its owner."""

from __future__ import annotations

from chat import audit, services
from chat.api.errors import problem_of
from chat.models import Run, Status
from chat.problems import Problem
from inference.tokens import TokensError
from scheduler.errors import SchedulerError

# Each is tokenised: a page of them takes seconds.
AT_ONCE = 100


def retry(run: Run) -> str:
    """Retry as its owner would, who is charged for it; why not, where that is refused.

    Read with its chat, that chat's owner, and its prompt.
    """
    if unfit := _unfit(run):
        return unfit
    audit.retry_asked(run)
    try:
        services.retry(run.chat.owner, run)
    except (Problem, SchedulerError, TokensError) as refusal:
        problem = problem_of(refusal)
        return f"{problem.title}. {problem.detail}" if problem else str(refusal)
    return ""


def _unfit(run: Run) -> str:
    if run.kind != Run.Kind.REPLY:
        return "It is no reply."
    if run.status not in {Status.FAILED, Status.CANCELLED}:
        return f"It is {run.status}."
    if not run.chat.owner.is_active:
        return "Its owner may not sign in."
    if not run.chat.is_kept:
        return "What was asked is not kept."
    latest = run.chat.runs.filter(kind=Run.Kind.REPLY).order_by("-id").values_list("pk", flat=True).first()
    return "" if latest == run.pk else "Another run has followed it in its chat."
