"""`manage.py reaper`"""

from __future__ import annotations

import logging
import signal
import threading
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from chat.recovery import Reaper

logger = logging.getLogger(__name__)


class Command(BaseCommand):
    """Finds runs that nobody brings to their end, until SIGTERM or SIGINT."""

    help = "Watch over live runs: let others go on with those of dead workers, and find what the broker lost."

    def handle(self, *_args: Any, **_options: Any) -> None:
        """Go on until told to stop; the round under way is finished."""
        stopped = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stopped.set())
        logger.info("reaper.starts period_s=%s lease_s=%s", settings.REAPER_PERIOD_S, settings.LEASE_S)
        Reaper(settings.REAPER_PERIOD_S).reap(stopped)
        logger.info("reaper.exits")
