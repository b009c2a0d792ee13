"""The version of a model that a worker serves, which need not be the active one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from inference.host import Workplace
from scheduler.models import Model


@dataclass(frozen=True, slots=True)
class Served:
    """A version, by its key, with the folder of its files on this machine, and its window in tokens."""

    version: int
    folder: Path
    context_window: int

    @classmethod
    def at(cls, workplace: Workplace) -> Self | None:
        """What the workplace serves; None where that is no version of a row's."""
        served = workplace.served
        return cls(served.version, workplace.folder, served.context_window) if served.version else None

    def show(self, model: Model) -> None:
        """Have a row that was read, and that nobody saves, tell of this version: prompts are made by it."""
        model.version_id = self.version
        model.source, model.context_window = str(self.folder), self.context_window
