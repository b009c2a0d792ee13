"""What a worker measures of itself, by which runs are sent to it or past it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from inference.gate import Gate
from inference.means import Ratio
from inference.turnover import Turnover
from scheduler.routing import Report


class Gauge:
    """The worker's free slots, how soon full ones come free, and `prefill`: seconds by computed tokens of prompts.

    Lives on the engine's event loop.
    """

    def __init__(self, worker: str, gate: Gate) -> None:
        self._worker = worker
        self._gate = gate
        self._turnover = Turnover()
        self.prefill = Ratio()

    @contextmanager
    def generating(self) -> Iterator[None]:
        """The engine has a run meanwhile. Its room in the gate is known by then, and still held at the end."""
        self._turnover.taken(is_full=not self._gate.free)
        try:
            yield
        finally:
            self._turnover.let_go(was_full=not self._gate.free)

    def report(self) -> Report:
        """As it is now."""
        return Report(self._worker, self._gate.free, self._turnover.interval_ms, 1e6 * self.prefill.value)
