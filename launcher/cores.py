"""Which worker computes where."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from launcher.problems import SetupProblem


def divide(places: Sequence[str], workers: int, kind: str) -> list[str]:
    """Share out cores or GPUs (`kind`) evenly, each to one worker, as comma-separated lists.

    Two vLLM workers on one core starve each other, so more workers than places raises `SetupProblem`.
    """
    if workers > len(places):
        raise SetupProblem(
            f"{workers} workers need a {kind} each, and this machine offers {len(places)}",
            f"Try: make run WORKERS={max(1, len(places))}",
        )
    ends = [len(places) * worker // workers for worker in range(workers + 1)]
    return [",".join(places[begin:end]) for begin, end in pairwise(ends)]
