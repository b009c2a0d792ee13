"""`python -m launcher.keeper MODULE ...`: run a module, and again whenever it dies after it had come up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from launcher import kernel

# What touches no READY_FILE has come up when it lived so long.
UP_AFTER_S = 10.0
# A worker's exit code where another version of its model is wanted: it has done nothing wrong.
CHANGES_OVER = os.EX_TEMPFAIL
PAUSE_MIN_S = 1.0
PAUSE_MAX_S = 30.0
LOOK_EVERY_S = 0.1


class Keeper:
    """Keeps one process going. One that never came up is not tried again: its last words say what to mend."""

    def __init__(self, module: Sequence[str], ready_file: Path | None) -> None:
        self._command = [sys.executable, "-m", *module]
        self._ready_file = ready_file
        self._child: subprocess.Popen[bytes] | None = None
        self._is_asked_to_stop = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)

    def keep(self) -> int:
        """Returns the exit status once it ended well, was asked to stop, or never came up."""
        pause_s, status, has_come_up = PAUSE_MIN_S, 0, False
        while not self._is_asked_to_stop:
            began_at = time.monotonic()
            status = self._run()
            lived_s = time.monotonic() - began_at
            has_come_up = has_come_up or self._came_up(lived_s)
            if status == CHANGES_OVER and not self._is_asked_to_stop:
                print("is started again, to serve another version", flush=True)
                self._pause(PAUSE_MIN_S)
                continue
            if self._is_asked_to_stop or status == 0 or not has_come_up:
                return status
            if lived_s > PAUSE_MAX_S:
                pause_s = PAUSE_MIN_S
            print(f"ended with status {status}, is started again in {pause_s:.0f} s", flush=True)
            self._pause(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)
        return status

    def _pause(self, pause_s: float) -> None:
        ends_at = time.monotonic() + pause_s
        while not self._is_asked_to_stop and time.monotonic() < ends_at:
            time.sleep(LOOK_EVERY_S)

    def _run(self) -> int:
        """In a group of its own: it is for us to pass a signal on, once."""
        with subprocess.Popen(
            self._command,
            start_new_session=True,
            preexec_fn=lambda: kernel.signal_at_parent_death(signal.SIGTERM),  # noqa: PLW1509  # we have no threads
        ) as self._child:
            if self._is_asked_to_stop:
                self._child.terminate()
            status = self._child.wait()
        return status if status >= 0 else 128 - status

    def _came_up(self, lived_s: float) -> bool:
        return self._ready_file.exists() if self._ready_file else lived_s > UP_AFTER_S

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        if self._child is not None and not self._is_asked_to_stop:
            self._child.terminate()
        self._is_asked_to_stop = True


def main() -> int:
    """Keep what the command line names."""
    ready_file = os.environ.get("READY_FILE")
    return Keeper(sys.argv[1:], Path(ready_file) if ready_file else None).keep()


if __name__ == "__main__":
    sys.exit(main())
