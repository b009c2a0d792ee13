"""`python -m tests.faults.mortal MODULE ...`: run a module of the product that dies where it is ordered to.

An order is a file that names the point. At that point the process takes the file away and dies, as by kill -9; whoever
is started in its place lives on.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import runpy
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ORDER = "MORTAL_ORDER"  # the environment variable that names the file


@dataclass(frozen=True, slots=True)
class Point:
    """A call of a function of the product's, the one of that number, before or after which the process dies."""

    module: str
    function: str
    is_behind: bool
    number: int = 1


POINTS: Mapping[str, Point] = {
    "a message is pulled and noted nowhere": Point("kombu.transport.redis", "QoS.append", is_behind=False, number=3),
    "a run is claimed": Point("chat.generation", "claim_run", is_behind=True),
    # The fence is the first entry to arrive.
    "older attempts are fenced off": Point("inference.stream_writer", "RunStream.arrived", is_behind=True),
    "the first delta is in the stream": Point("inference.stream_writer", "RunStream.arrived", is_behind=True, number=2),
    "many deltas are in the stream": Point("inference.stream_writer", "RunStream.arrived", is_behind=True, number=40),
    "the row is finished and its readers not told": Point("chat.generation", "finish_run", is_behind=True),
    "readers are told and the message not acknowledged": Point("inference.pool", "Job.finish", is_behind=False),
    "a run is charged and its reservation not settled": Point("chat.accounting", "settle", is_behind=False),
    "a question is stored and its run not released": Point("chat.queueing", "admit", is_behind=False),
}
# Whoever dies there leaves no run.
RESERVED = "what a question may cost is reserved and its run not stored"
FATES = {**POINTS, RESERVED: Point("scheduler.budgets", "TokenBuckets.reserve", is_behind=True)}


def main() -> None:
    """Arm all points, then become the module."""
    _, module, *arguments = sys.argv
    order = Path(os.environ[ORDER])
    importlib.import_module("chat.hosting")  # where a process enters Django
    for name, point in FATES.items():
        arm(point, _Fate(name, point.number, order))
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def arm(point: Point, fate: _Fate) -> None:
    """Have the process meet its fate at the point."""
    owner: Any = importlib.import_module(point.module)
    *path, name = point.function.split(".")
    for part in path:
        owner = getattr(owner, part)
    setattr(owner, name, _mortal(getattr(owner, name), fate, is_behind=point.is_behind))


class _Fate:
    """What awaits the process at one point."""

    def __init__(self, name: str, number: int, order: Path) -> None:
        self._name = name
        self._left = number
        self._order = order

    def come_nearer(self) -> None:
        """Die, if that is ordered and the point was passed often enough since."""
        if not self._is_ordered():
            return
        self._left -= 1
        if not self._left:
            self._order.unlink()
            os.kill(os.getpid(), signal.SIGKILL)

    def _is_ordered(self) -> bool:
        try:
            return self._order.read_text() == self._name
        except FileNotFoundError:
            return False


def _mortal(function: Callable[..., Any], fate: _Fate, *, is_behind: bool) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not is_behind:
            fate.come_nearer()
        result = function(*args, **kwargs)
        if is_behind:
            fate.come_nearer()
        return result

    @functools.wraps(function)
    async def call_and_wait(*args: Any, **kwargs: Any) -> Any:
        if not is_behind:
            fate.come_nearer()
        result = await function(*args, **kwargs)
        if is_behind:
            fate.come_nearer()
        return result

    return call_and_wait if inspect.iscoroutinefunction(function) else call


if __name__ == "__main__":
    main()
