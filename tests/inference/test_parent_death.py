"""Spawned processes die with the parent that kill -9 took, whenever it strikes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, sleep

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 20


class Family:
    """The processes of `mortal_family`."""

    def __init__(self, how: str, folder: Path) -> None:
        self.folder = folder
        command = [sys.executable, "-m", "tests.inference.mortal_family", how, str(folder)]
        self.parent = subprocess.Popen(command, cwd=ROOT)

    def wait_for(self, generation: str) -> psutil.Process:
        """The process of that generation, once it stands at its gate."""
        file = self.folder / f"{generation}.pid"
        wait_until(file.exists)
        return psutil.Process(int(file.read_text()))

    def let_arm(self, generation: str) -> None:
        (self.folder / f"{generation}.go").touch()

    def wait_armed(self, generation: str) -> None:
        wait_until((self.folder / f"{generation}.armed").exists)

    def kill_parent(self) -> None:
        self.parent.kill()
        self.parent.wait()

    def end(self) -> None:
        self.kill_parent()
        self.let_arm("grandchild")  # one that is still on its way to the gate ends itself there
        for file in self.folder.glob("*.pid"):
            if psutil.pid_exists(pid := int(file.read_text())):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def family(tmp_path: Path) -> Iterator[Callable[[str], Family]]:
    begun: list[Family] = []

    def begin(how: str) -> Family:
        begun.append(Family(how, tmp_path))
        return begun[-1]

    yield begin
    for one in begun:
        one.end()


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for `condition`, and fail when it does not come about."""
    deadline = monotonic() + PATIENCE_S
    while not condition():
        assert monotonic() < deadline, "waited in vain"
        sleep(0.01)


def is_gone(process: psutil.Process) -> bool:
    """Ended; an orphan that nobody reaps is a zombie."""
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize("how", ["main", "plugin"])
def test_a_child_that_is_armed_dies_with_its_parent(family: Callable[[str], Family], how: str) -> None:
    ours = family(how)
    child = ours.wait_for("child")
    ours.let_arm("child")
    ours.wait_armed("child")

    ours.kill_parent()

    wait_until(lambda: is_gone(child))


@pytest.mark.parametrize("how", ["main", "plugin"])
def test_a_child_whose_parent_died_before_it_could_arm_ends_itself(family: Callable[[str], Family], how: str) -> None:
    ours = family(how)
    child = ours.wait_for("child")

    ours.kill_parent()
    assert not is_gone(child)
    ours.let_arm("child")

    wait_until(lambda: is_gone(child))
    assert not (ours.folder / "child.armed").exists()


@pytest.mark.parametrize("how", ["main", "plugin"])
def test_a_child_lives_as_long_as_its_parent_does_and_so_does_a_grandchild(
    family: Callable[[str], Family], how: str
) -> None:
    ours = family(how)
    child = ours.wait_for("child")
    ours.let_arm("child")
    grandchild = ours.wait_for("grandchild")
    ours.let_arm("grandchild")
    ours.wait_armed("grandchild")
    assert not is_gone(child)
    assert not is_gone(grandchild)

    ours.kill_parent()

    wait_until(lambda: is_gone(child))
    wait_until(lambda: is_gone(grandchild))


@pytest.mark.parametrize("how", ["main", "plugin"])
def test_what_is_signalled_to_the_parents_group_does_not_reach_a_child(
    family: Callable[[str], Family], how: str
) -> None:
    ours = family(how)
    child = ours.wait_for("child")
    ours.let_arm("child")
    ours.wait_armed("child")

    assert os.getpgid(child.pid) == child.pid


def test_a_child_that_nobody_arms_outlives_its_parent(family: Callable[[str], Family]) -> None:
    """Without this the tests above would prove nothing."""
    ours = family("nobody")
    child = ours.wait_for("child")
    ours.let_arm("child")
    ours.wait_armed("child")

    ours.kill_parent()
    sleep(0.5)

    assert not is_gone(child)
