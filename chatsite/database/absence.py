"""What a process knows of a server that does not answer."""

from __future__ import annotations

import threading
import time

PAUSE_S = 2.0


class Absence:
    """Remembers that a server is away, so that not everybody waits to find out."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_away = False
        self._look_again_at = 0.0

    def may_look(self) -> bool:
        """Whether to ask the server: always while it answers, else one caller in `PAUSE_S`."""
        with self._lock:
            if not self._is_away:
                return True
            if time.monotonic() < self._look_again_at:
                return False
            self._look_again_at = time.monotonic() + PAUSE_S
            return True

    def begin(self) -> None:
        """It does not answer."""
        with self._lock:
            self._is_away = True
            self._look_again_at = time.monotonic() + PAUSE_S

    def end(self) -> None:
        """It answers."""
        self._is_away = False
