"""What we ask of Linux: die with the parent, adopt orphans, find and end every descendant."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections import defaultdict
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
LOOK_EVERY_S = 0.05

_libc = ctypes.CDLL(None, use_errno=True)


def signal_at_parent_death(signum: int) -> None:
    """Have the kernel send us `signum` when the parent dies; kept across exec, lost when the uid changes."""
    _prctl(PR_SET_PDEATHSIG, signum)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent dies; kept across exec."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def descendants(ancestor: int) -> set[int]:
    """Pids of all processes below `ancestor`, zombies left out."""
    children = defaultdict(list)
    for pid, parent, state in _processes():
        if state != "Z" or pid == ancestor:
            children[parent].append(pid)
    found: set[int] = set()
    unseen = [ancestor]
    while unseen:
        below = children[unseen.pop()]
        found.update(below)
        unseen.extend(below)
    return found


def _processes() -> list[tuple[int, int, str]]:
    return [entry for name in os.listdir("/proc") if name.isdigit() and (entry := _stat(name))]


def _stat(name: str) -> tuple[int, int, str] | None:
    try:
        # The command name stands in brackets and may itself hold brackets and spaces.
        state, parent, _ = Path("/proc", name, "stat").read_text(errors="replace").rpartition(")")[2].split(None, 2)
    except (OSError, ValueError):
        return None  # ended while we looked
    return int(name), int(parent), state


def end_descendants(grace_s: float) -> None:
    """End everything below this process: SIGTERM, after `grace_s` SIGKILL, until nothing is left.

    Only complete for a process that adopts orphans. Whatever is started meanwhile is ended too.
    """
    kill_at = time.monotonic() + grace_s
    asked: set[int] = set()
    while not _reap():
        living = descendants(os.getpid())
        if time.monotonic() >= kill_at:
            send(signal.SIGKILL, living)
        else:
            send(signal.SIGTERM, living - asked)
            asked |= living
        time.sleep(LOOK_EVERY_S)


def _reap() -> bool:
    """Bury dead children; True when there are no children left, dead or living."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return True
    return False


def send(signum: int, pids: set[int]) -> None:
    """Signal each process that still exists."""
    for pid in pids:
        try:
            os.kill(pid, signum)
        except ProcessLookupError:
            continue
