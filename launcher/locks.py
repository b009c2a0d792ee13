"""Only one make at a time may do what these guard; a lock goes with its process, however that ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from launcher.places import private_folder
from launcher.problems import SetupProblem


@contextmanager
def one_at_a_time(path: Path, doing: str) -> Iterator[int]:
    """Wait, saying so, until no other make is `doing` it; gives the lock's descriptor."""
    private_folder(path.parent)
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"Another make is {doing}; waiting for it ...", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock.fileno()


@contextmanager
def only_one(path: Path) -> Iterator[None]:
    """Raises `SetupProblem` when another Palaver holds the lock already."""
    private_folder(path.parent)
    with path.open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise SetupProblem(
                f"Palaver already runs here (process {lock.read().strip()})",
                "Stop it first, or keep a second one apart: make run PALAVER_STATE=/some/folder PORT=8001",
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield
