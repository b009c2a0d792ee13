"""A process that is kept going: when it is started again, when not, and how it is stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.launcher.launched import ROOT

PATIENCE_S = 30
# A keeper that asks for less of a life than usual.
EASILY_PLEASED = "import sys; from launcher import keeper; keeper.UP_AFTER_S = 0.5; sys.exit(keeper.main())"


class Kept:
    """A keeper with a mortal process that notes what happens to it."""

    def __init__(
        self, folder: Path, *arguments: str, comes_up: bool = True, keeper: Sequence[str] = ("-m", "launcher.keeper")
    ) -> None:
        self._notes = folder / "notes"
        ready = {"READY_FILE": str(folder / "ready")} if comes_up else {}
        command = [sys.executable, *keeper, "tests.launcher.mortal", str(self._notes), *arguments]
        environ = {name: value for name, value in os.environ.items() if name != "READY_FILE"} | ready
        self.keeper = subprocess.Popen(command, cwd=ROOT, env=environ, start_new_session=True)

    @property
    def notes(self) -> list[str]:
        """What it noted so far."""
        return self._notes.read_text().split() if self._notes.exists() else []

    def until(self, condition: Callable[[], bool]) -> None:
        """Return once it comes true."""
        give_up_at = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < give_up_at, self.notes
            time.sleep(0.02)

    def started(self, times: int) -> int:
        """The pid, once it was started so often."""
        self.until(lambda: len(self.notes) == times)
        return int(self.notes[-1])


@pytest.fixture
def keep(tmp_path: Path) -> Iterator[Callable[..., Kept]]:
    made: list[Kept] = []

    def make(*arguments: str, **options: Any) -> Kept:
        made.append(Kept(tmp_path, *arguments, **options))
        return made[-1]

    yield make
    for kept in made:
        kept.keeper.kill()
        kept.keeper.wait()


def test_what_dies_is_started_again(keep: Callable[..., Kept]) -> None:
    kept = keep()
    first = kept.started(times=1)

    os.kill(first, signal.SIGKILL)

    assert kept.started(times=2) != first


def test_what_had_come_up_once_is_started_again_though_it_dies_at_once(keep: Callable[..., Kept]) -> None:
    kept = keep(comes_up=False, keeper=("-c", EASILY_PLEASED))
    first = psutil.Process(kept.started(times=1))
    kept.until(lambda: time.time() - first.create_time() > 4)  # far longer than the keeper asks for
    first.kill()

    os.kill(kept.started(times=2), signal.SIGKILL)

    kept.started(times=3)


def test_what_changes_over_is_started_again_though_it_never_came_up(keep: Callable[..., Kept]) -> None:
    kept = keep("--changes", comes_up=False)

    kept.started(times=2)
    kept.keeper.terminate()
    kept.keeper.wait(PATIENCE_S)


def test_what_never_came_up_ends_with_its_status(keep: Callable[..., Kept]) -> None:
    kept = keep("--ends", comes_up=False)

    assert kept.keeper.wait(PATIENCE_S) == 7
    assert len(kept.notes) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("send", [os.kill, os.killpg])
def test_a_stop_is_passed_on_once(
    keep: Callable[..., Kept], send: Callable[[int, int], None], number: signal.Signals
) -> None:
    kept = keep()
    kept.started(times=1)

    send(kept.keeper.pid, number)

    assert kept.keeper.wait(PATIENCE_S) == 3
    assert kept.notes[1:] == ["asked"]


def test_a_stop_between_two_starts_is_heeded(keep: Callable[..., Kept]) -> None:
    kept = keep("--ends")
    kept.started(times=1)
    kept.until(lambda: not psutil.Process(kept.keeper.pid).children())

    kept.keeper.terminate()

    kept.keeper.wait(PATIENCE_S)
    assert len(kept.notes) <= 3  # it may have begun again just then


def test_it_does_not_outlive_its_keeper(keep: Callable[..., Kept]) -> None:
    kept = keep()
    pid = kept.started(times=1)

    kept.keeper.kill()

    kept.until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
