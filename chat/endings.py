"""What a run's last event says; the worker and whoever answers in its place build it alike, from the row."""

from __future__ import annotations

import hashlib
from typing import Any

from django.utils.translation import gettext_noop as _

from chat.models import Run, Status
from inference.streams import Ended
from scheduler.prices import cost

WORKER_LOST = "worker_lost"
QUEUE_TIMEOUT = "queue_timeout"
# Codes of a failed run, and what its reader is told. Never the engine's own words: they may quote the prompt.
DETAILS = {
    "generation_failed": _("The model failed while it wrote this answer."),
    "prompt_rejected": _("The model does not take this conversation."),
    "unencodable_text": _("The conversation holds characters that cannot be encoded."),
    "template_refused": _("The model's chat template does not take this conversation."),
    "tokenizer_unusable": _("The model's tokenizer cannot be used."),
    QUEUE_TIMEOUT: _("No worker was free in time. It cost you nothing; try again."),
    WORKER_LOST: _("The workers that wrote this answer went down, again and again."),
    "background_timeout": _("The model took too long for it."),
    "background_empty": _("The model wrote nothing of use."),
    "internal_error": _("Something went wrong on our side."),
}
# The same prompt would fail again.
FINAL_CODES = frozenset({"prompt_rejected", "unencodable_text", "template_refused"})


def ended(run: Run, text: str) -> Ended:
    """The terminal event of a run that has ended with `text`."""
    return Ended(run.status, {**_common(run, text), **_particular(run)})


def _common(run: Run, text: str) -> dict[str, Any]:
    return {
        "status": str(run.status),
        "message_id": str(run.answer_id) if run.answer_id else None,
        "finish_reason": run.finish_reason,
        "chars": len(text),
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
        "usage": {
            "input_tokens": run.input_tokens,
            "cached_tokens": run.cached_tokens,
            "output_tokens": run.output_tokens,
            "charged_tokens": run.charged_tokens,
        },
    }


def _particular(run: Run) -> dict[str, Any]:
    match Status(run.status):
        case Status.FAILED:
            retryable = run.error_code not in FINAL_CODES
            return {"code": run.error_code, "detail": run.error_detail, "retryable": retryable}
        case Status.CANCELLED:
            reserved = cost(run.input_tokens, run.max_output_tokens)
            return {"refunded_tokens": reserved - run.charged_tokens}
        case _:
            return {}
