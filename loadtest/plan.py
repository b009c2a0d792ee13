"""The steps of a test: how many users, for how long, and which part of it counts."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from loadtest.knee import Bounds

PLAN = "PALAVER_LOADTEST_PLAN"  # names its file to the process that carries it out
WARM_UP_PART = 0.3  # of a step: newcomers come in its first half, and what they meet settles
SPAWN_PART = 0.5  # of the warm-up


@dataclass(frozen=True)
class Plan:
    """`step_users` more in each step, up to `most_users`; `figures` is the file that takes a line of JSON a step."""

    step_users: int
    step_seconds: float
    most_users: int
    bounds: Bounds
    figures: str = ""

    @property
    def warm_up_s(self) -> float:
        """What of a step is left out of its figures."""
        return self.step_seconds * WARM_UP_PART

    @property
    def spawn_per_s(self) -> float:
        """How fast newcomers come."""
        return max(0.1, self.step_users / (self.warm_up_s * SPAWN_PART))

    def users(self, step: int) -> int | None:
        """Of the step of that number, from 0; None behind the last one."""
        users = self.step_users * (step + 1)
        before = users - self.step_users
        return None if before >= self.most_users else min(users, self.most_users)

    def write(self, path: Path) -> None:
        """For the process that carries it out."""
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> Plan:
        """The inverse."""
        told = json.loads(path.read_text())
        return cls(**{**told, "bounds": Bounds(**told["bounds"])})
