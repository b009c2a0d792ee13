"""Say which step is running and how far it is."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

SAY_AGAIN_S = 10
CLEAR_LINE = "\r\033[K"


class Step:
    """One numbered step: a live line on a terminal, elsewhere a line at the start, now and then, and at the end."""

    def __init__(self, number: int, of: int, title: str, live: bool = True) -> None:
        self._title = f"[{number}/{of}] {title}"
        self._started = self._said = time.monotonic()
        self._live = live and sys.stdout.isatty()

    def __enter__(self) -> Self:
        self._say(f"{self._title} ...", ends=not self._live)
        return self

    def at(self, how_far: str) -> None:
        """Show how far the step is; cheap enough to be called often."""
        if self._live:
            self._say(f"{CLEAR_LINE}{self._title}: {how_far}, {self._elapsed()}", ends=False)
        elif time.monotonic() - self._said >= SAY_AGAIN_S:
            self._said = time.monotonic()
            self._say(f"{self._title}: {how_far}, {self._elapsed()}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        before = CLEAR_LINE if self._live else ""
        if kind is None:
            self._say(f"{before}{self._title}: done in {self._elapsed()}")
        elif self._live:
            self._say("")

    def _elapsed(self) -> str:
        minutes, seconds = divmod(round(time.monotonic() - self._started), 60)
        return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"

    def _say(self, text: str, ends: bool = True) -> None:
        print(text, end="\n" if ends else "", flush=True)
