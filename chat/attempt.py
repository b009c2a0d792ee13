"""One claim of a run by a worker, and what may end it before its time."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from uuid import UUID

from chat.context import Prompt
from chat.draft import Draft
from chat.models import Claim, Run
from inference.gate import Visit
from inference.host import HandedBack

logger = logging.getLogger(__name__)

INTERNAL_ERROR = "internal_error"


class AttemptLost(Exception):
    """The run is another's by now, or deleted: publish nothing."""


class Cancelled(Exception):
    """Its reader wants no more of it: keep the text so far."""


class Verdict(Enum):
    """Why an attempt must stop before its end."""

    HANDED_BACK = auto()
    CANCELLED = auto()
    LOST = auto()


@dataclass(eq=False, slots=True)
class Summons:
    """A message that is being turned into an attempt; a cancel that comes meanwhile is noted here."""

    run_id: UUID
    visit: Visit
    is_cancelled: bool = False


@dataclass(eq=False, slots=True)
class Attempt:
    """A run that this worker has claimed."""

    run: Run
    claim: Claim
    draft: Draft
    visit: Visit
    verdict: Verdict | None = None
    prompt: Prompt | None = None  # once it is built

    @property
    def request_id(self) -> str:
        """What the engine knows it by: a fresh name for each attempt."""
        return f"{self.claim.run_id}:{self.claim.attempt}"

    def stop(self, verdict: Verdict) -> None:
        """It must end: at once where it waits for room, else when it looks. The first verdict counts."""
        self.verdict = self.verdict or verdict
        self.visit.dismiss(_ENDS[self.verdict](self.request_id))

    def check(self) -> None:
        """Raises `HandedBack`, `Cancelled`, `AttemptLost` when it must stop."""
        if self.verdict is not None:
            raise _ENDS[self.verdict](self.request_id)


_ENDS: Mapping[Verdict, type[Exception]] = {
    Verdict.HANDED_BACK: HandedBack,
    Verdict.CANCELLED: Cancelled,
    Verdict.LOST: AttemptLost,
}


def log_without_text(attempt: Attempt, error: Exception) -> None:
    """An error's own words may quote a row, hence a message: its kind and place must do."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    logger.error(
        "run.broke run=%s attempt=%d error=%s at=%s:%s",
        *(attempt.run.pk, attempt.claim.attempt, type(error).__name__, place.filename, place.lineno),
    )
