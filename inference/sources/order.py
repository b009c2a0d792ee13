"""What is to be fetched, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from inference.sources.choice import Choice
from inference.sources.manifest import Manifest
from inference.sources.source import Source

OnProgress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Order:
    """Which files of which source, and the folder that remembers."""

    source: Source
    revision: str
    cache: Path
    choice: Choice
    expected: Manifest | None

    def check_sizes(self, found: Mapping[str, int]) -> None:
        """Whether files by name may be those that are wanted. Raises `NotServable`, `FilesDiffer`."""
        self.choice.check(found.keys(), str(self.source))
        if self.expected:
            self.expected.check_sizes({name: size for name, size in found.items() if self.choice.takes(name)})


@dataclass(frozen=True, slots=True)
class Fetched:
    """A folder with files, their manifest, and the revision that brings the same ones again."""

    folder: Path
    manifest: Manifest
    revision: str = ""
