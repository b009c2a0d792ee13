"""A worker's place on the roster: what it tells, what it hears, and what it does while nobody answers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from inference import attendance
from inference.attendance import Attendance, Phase
from inference.host import NotServed, ServedModel

AWAY = NotServed("the database does not answer", is_passing=True)
PATIENCE_S = 10


class Rows:
    """A roster that notes what it is told, and answers as the test wants."""

    def __init__(self) -> None:
        self.told: list[tuple[str, ...]] = []
        self.wanted: int | None = 1
        self.refusal: NotServed | None = None

    def enter(self) -> ServedModel:
        raise AssertionError("nobody asks this of a worker that has begun")

    def check_in(self, phase: str, detail: str) -> int | None:
        self._note("check in", phase, detail)
        return self.wanted

    def arrived(self, _revision: str, digest: str, _manifest: Any) -> None:
        self._note("arrived", digest)

    def failed(self, reason: str) -> None:
        self._note("failed", reason)

    def leave(self) -> None:
        self._note("leave")

    def _note(self, *told: str) -> None:
        self.told.append(told)
        if self.refusal:
            raise self.refusal


@pytest.fixture
def rows() -> Rows:
    return Rows()


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attendance, "CHECK_IN_S", 0.02)


def until(condition: Callable[[], Any]) -> None:
    give_up_at = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < give_up_at, "it never came"
        time.sleep(0.005)


def test_it_tells_how_far_the_worker_is(rows: Rows) -> None:
    ours = Attendance(rows, version=1)
    with ours.kept(lambda: None):
        for phase, detail in ((Phase.FETCHING, "3 of 9 MB"), (Phase.LOADING, ""), (Phase.SERVING, "")):
            ours.now(phase, detail)
            until(lambda: ("check in", phase, detail) in rows.told)  # noqa: B023  (asked at once)


@pytest.mark.parametrize("wanted", [2, None])
def test_it_hears_of_another_version_once(rows: Rows, wanted: int | None) -> None:
    heard: list[str] = []
    with Attendance(rows, version=1).kept(lambda: heard.append(threading.current_thread().name)):
        until(lambda: len(rows.told) > 3)
        assert not heard
        rows.wanted = wanted
        until(lambda: heard)
        count = len(rows.told)
        until(lambda: len(rows.told) > count + 3)
    assert heard == ["attendance"]


def test_while_the_rows_are_away_the_worker_stays_as_it_is(rows: Rows) -> None:
    heard: list[str] = []
    with Attendance(rows, version=1).kept(lambda: heard.append("another")):
        rows.refusal = AWAY
        until(lambda: len(rows.told) > 5)
        rows.refusal, rows.wanted = None, 2
        until(lambda: heard)


def test_an_arrival_waits_for_the_rows_and_takes_no_for_an_answer(rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = Attendance(rows, version=1)
    rows.refusal = AWAY
    monkeypatch.setattr("inference.attendance.time.sleep", lambda _: setattr(rows, "refusal", None))
    ours.arrived("", "digest", {})
    assert rows.told == [("arrived", "digest")] * 2

    rows.refusal = NotServed("the files are others")
    with pytest.raises(NotServed, match="are others"):
        ours.arrived("", "digest", {})


def test_behind_a_failure_nothing_more_is_told(rows: Rows) -> None:
    ours = Attendance(rows, version=1)
    with ours.kept(lambda: None):
        until(lambda: rows.told)
        ours.failed("no memory")
        time.sleep(0.1)
        assert rows.told[-2:] == [("failed", "no memory"), ("check in", "failed", "no memory")]


@pytest.mark.parametrize("wanted", [1, 2])
def test_behind_a_failure_it_knows_whether_another_version_is_wanted(rows: Rows, wanted: int) -> None:
    ours = Attendance(rows, version=1)
    rows.wanted = wanted
    ours.failed("no memory")
    assert ours.is_wanted_elsewhere == (wanted != 1)


def test_a_failure_that_nobody_hears_ends_the_worker_all_the_same(rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attendance, "PATIENCE_S", 0)
    rows.refusal = AWAY
    ours = Attendance(rows, version=1)
    ours.failed("no memory")
    ours.leave()
    assert rows.told == [("failed", "no memory"), ("leave",)]
