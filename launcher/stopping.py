"""How the runner stops: in order when asked, at once when that takes too long, never leaving anything behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from launcher import kernel

# From the request to stop until we kill what is left. The guard may be dead, so nobody else does.
BOUND_S = 8
GRACE_S = 1.0


@contextmanager
def orderly() -> Iterator[None]:
    """Leave the block by `SystemExit` on SIGINT or SIGTERM; afterwards, or `BOUND_S` later, no descendant is left."""
    signal.signal(signal.SIGALRM, _end_now)
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, _stop)
    try:
        yield
    finally:
        begin_bound()
        kernel.end_descendants(GRACE_S)
        signal.alarm(0)  # it would outlive an exec


def begin_bound() -> None:
    """Start the time within which everything must have stopped; a second call does not prolong it."""
    if not signal.getitimer(signal.ITIMER_REAL)[0]:
        signal.alarm(BOUND_S)


def _stop(signum: int, _frame: FrameType | None) -> None:
    begin_bound()
    for other in (signal.SIGINT, signal.SIGTERM):
        signal.signal(other, _already_stopping)
    raise SystemExit(128 + signum)


def _already_stopping(_signum: int, _frame: FrameType | None) -> None:
    """A second request must not break into the clean-up of the first."""


def _end_now(_signum: int, _frame: FrameType | None) -> None:
    kernel.end_descendants(0)
    os._exit(1)
