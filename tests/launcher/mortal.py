"""`python -m tests.launcher.mortal FILE`: note each start and each SIGTERM in a file, end with 3 at a SIGTERM."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType

notes = Path(sys.argv[1])


def note(line: str) -> None:
    """One line more."""
    with notes.open("a") as file:
        file.write(f"{line}\n")


def asked(_number: int, _frame: FrameType | None) -> None:
    """A moment later, so that a second signal would be seen."""
    note("asked")
    time.sleep(0.3)
    sys.exit(3)


signal.signal(signal.SIGTERM, asked)
if ready_file := os.environ.get("READY_FILE"):
    Path(ready_file).touch()
note(str(os.getpid()))
if "--ends" in sys.argv:
    sys.exit(7)
if "--changes" in sys.argv:
    sys.exit(75)
time.sleep(600)
