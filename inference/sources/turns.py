"""One process of a host fetches, others that want the same wait and see how far it is."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from inference.sources.order import OnProgress

LOOK_S = 0.2


@contextmanager
def one_at_a_time(path: Path, on_progress: OnProgress) -> Iterator[OnProgress]:
    """Wait for the lock; gives what is to be told of the progress, to `on_progress` and those who wait.

    The kernel takes the lock from a process that ends, however it ends.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644), "r+b", buffering=0) as lock:
        _wait(lock.fileno(), on_progress)

        def tell(done_bytes: int, total_bytes: int) -> None:
            # Of one length, so that who reads in between sees an old or a new one.
            os.pwrite(lock.fileno(), b"%20d %20d" % (done_bytes, total_bytes), 0)
            on_progress(done_bytes, total_bytes)

        lock.truncate(0)
        yield tell


def _wait(descriptor: int, on_progress: OnProgress) -> None:
    while not _taken(lambda: fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)):
        if told := os.pread(descriptor, 41, 0).split():
            on_progress(int(told[0]), int(told[-1]))
        time.sleep(LOOK_S)


def _taken(lock: Callable[[], None]) -> bool:
    try:
        lock()
    except BlockingIOError:
        return False
    return True
