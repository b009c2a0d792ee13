"""Stop strings: the answer ends at the first of them, without it."""

from __future__ import annotations

from collections.abc import Sequence


class StopStrings:
    """Lets text through that cannot be part of one. What it lets through depends on the text alone, not on its pieces.

    So an attempt that goes on from the ids of another holds back the same characters.
    """

    def __init__(self, stops: Sequence[str] = ()) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.is_met = False

    def push(self, text: str) -> str:
        """Take text in; returns what may be told. Nothing once a stop string was met."""
        if not self._stops or self.is_met:
            return "" if self.is_met else text
        text = self._held + text
        # The one that is whole first, though another may begin before it.
        found = [(start + len(stop), start) for stop in self._stops if (start := text.find(stop)) >= 0]
        self.is_met = bool(found)
        end = min(found)[1] if found else len(text) - self._begun(text)
        self._held = "" if found else text[end:]
        return text[:end]

    def flush(self) -> str:
        """Returns what was held back: no more comes."""
        held, self._held = self._held, ""
        return held

    def _begun(self, text: str) -> int:
        """How many characters at the end may be the beginning of a stop string."""
        longest = max(map(len, self._stops)) - 1
        sizes = range(min(longest, len(text)), 0, -1)
        return next((size for size in sizes if any(stop.startswith(text[-size:]) for stop in self._stops)), 0)
