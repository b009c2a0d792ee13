"""Which core serves, and which one asks."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self


class TooFewCores(Exception):
    """The server under test and the load would share one: nothing that is measured so means anything."""


@dataclass(frozen=True)
class Cores:
    """One for the server under test, one for all else: load, PostgreSQL, Valkey, reaper, engines behind others."""

    server: int
    load: int

    @classmethod
    def of_this_machine(cls) -> Self:
        """The last two that we may use. Raises `TooFewCores`."""
        usable = sorted(os.sched_getaffinity(0))
        if len(usable) < 2:
            raise TooFewCores("the bench needs two cores: one for the server under test, one for the load")
        return cls(usable[-1], usable[-2])


def staying_on(core: int) -> Callable[[], None]:
    """What a process calls to stay on a core, with all that it starts from then on."""
    return lambda: os.sched_setaffinity(0, {core})
