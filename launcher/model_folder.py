"""Whether a folder holds a model that can be served, told as set-up tells it."""

from __future__ import annotations

from pathlib import Path

from inference.sources import SourceError, weights
from launcher.problems import SetupProblem

CURE = "Download the model again, or leave MODEL out to use the small one that comes along."


def check(folder: Path) -> None:
    """Raises `SetupProblem` naming the first thing that is missing or cut short."""
    try:
        weights.check(folder)
    except SourceError as error:
        raise SetupProblem(error.cause, CURE) from error
