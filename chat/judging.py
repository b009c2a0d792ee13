"""The engine as the judge of our counts: what was reserved for a prompt is what it takes."""

from __future__ import annotations

import logging

from chat.attempt import Attempt
from chat.models import Run
from inference.engine import Generation, Step
from inference.metering import Meter

logger = logging.getLogger(__name__)


def judge(meter: Meter, attempt: Attempt, generation: Generation, step: Step) -> None:
    """On an attempt's first step: whether the engine counts as many input tokens as the web did. A worker built them.

    What earlier attempts wrote of the answer is in the engine's prompt, and no input. For a background run nothing is
    reserved: its prompt is the chat's as it is when it runs.
    """
    run, draft = attempt.run, attempt.draft
    if draft.has_begun:
        return
    counted = (step.input_tokens or len(generation.prompt_ids)) - len(draft.token_ids)
    asked = run.input_tokens if run.kind == Run.Kind.REPLY else len(generation.prompt_ids)
    if counted != asked:
        meter.tallies[run.room_tier].miscounted += 1
        logger.error("run.miscounted run=%s asked=%d engine=%d", run.pk, asked, counted)
