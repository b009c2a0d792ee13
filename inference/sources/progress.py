"""How far a fetch is, counted by several threads."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock

PERIOD_S = 0.2


class Progress:
    """Bytes done of a total, told five times a second at most and at the end."""

    def __init__(self, tell: Callable[[int, int], None]) -> None:
        self._tell = tell
        self._lock = Lock()
        self._done = self._total = 0
        self._told_at = 0.0

    def begin(self, total_bytes: int) -> None:
        """Count anew: a hub's files are first downloaded, then hashed."""
        with self._lock:
            self._done, self._total, self._told_at = 0, total_bytes, time.monotonic()
            self._tell(0, total_bytes)

    def add(self, count_bytes: int) -> None:
        """So many more; fewer when a download had to begin again."""
        with self._lock:
            self._done += count_bytes
            now = time.monotonic()
            if now >= self._told_at + PERIOD_S or self._done == self._total:
                self._told_at = now
                self._tell(self._done, self._total)
