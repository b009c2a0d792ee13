"""What the log says of whom."""

from __future__ import annotations

import logging
from http import HTTPStatus

from chat.problems import QueueFull


class SecurityInOneLine(logging.Filter):
    """Requests that Django refuses are not bugs: a line each, since anybody can send as many as they like."""

    def filter(self, record: logging.LogRecord) -> bool:
        """True, with the stack trace taken away."""
        if record.name.startswith("django.security."):
            record.exc_info = None
        return True


class NoRefusals(logging.Filter):
    """Who is over a limit, or finds a queue full, is served as is meant: under load that is every second request."""

    def filter(self, record: logging.LogRecord) -> bool:
        """False for the answers that say so, as `django.request` tells of them: their reason, and their path."""
        reason = record.args[0] if isinstance(record.args, tuple) and record.args else None
        return getattr(record, "status_code", None) != HTTPStatus.TOO_MANY_REQUESTS and reason != QueueFull.title
