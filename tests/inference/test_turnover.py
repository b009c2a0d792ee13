"""How soon a full worker has a free slot again, as it measures it."""

from __future__ import annotations

import pytest

from inference.means import Ratio
from inference.turnover import Turnover


class Worker:
    """Slots, and a clock that the test moves on."""

    def __init__(self, slots: int) -> None:
        self.free, self.now_s = slots, 0.0
        self.turnover = Turnover(lambda: self.now_s)

    def take(self, count: int = 1) -> None:
        for _ in range(count):
            self.free -= 1
            self.turnover.taken(is_full=not self.free)

    def let_go(self, count: int = 1) -> None:
        for _ in range(count):
            self.turnover.let_go(was_full=not self.free)
            self.free += 1

    def pass_s(self, seconds: float) -> None:
        self.now_s += seconds


def test_nothing_is_measured_of_a_worker_that_was_never_full() -> None:
    worker = Worker(2)
    for _ in range(5):
        worker.take()
        worker.pass_s(3)
        worker.let_go()

    assert worker.turnover.interval_ms == 0


def test_a_full_workers_slots_come_free_one_after_the_other() -> None:
    worker = Worker(2)
    worker.take(2)
    for _ in range(5):
        worker.pass_s(3.98)
        worker.let_go()
        worker.pass_s(0.02)
        worker.take()

    assert worker.turnover.interval_ms == pytest.approx(4000, rel=0.01)


def test_slots_that_come_free_at_one_step_share_the_time() -> None:
    worker = Worker(4)
    worker.take(4)
    for _ in range(200):
        worker.pass_s(8)
        worker.let_go(4)
        worker.take(4)

    assert worker.turnover.interval_ms == pytest.approx(2000, rel=0.05)


def test_slots_that_stood_empty_do_not_count() -> None:
    worker = Worker(2)
    worker.take(2)
    worker.pass_s(4)
    worker.let_go(2)
    worker.pass_s(100)
    worker.take(2)
    worker.pass_s(4)
    worker.let_go()

    assert worker.turnover.interval_ms < 4000


def test_what_was_measured_of_late_outweighs_what_was_before() -> None:
    ratio = Ratio()
    assert ratio.value == 0
    for _ in range(200):
        ratio.add(10, 1)
    for _ in range(200):
        ratio.add(40, 2)

    assert ratio.value == pytest.approx(20, rel=0.01)
