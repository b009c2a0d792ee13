"""`python -m tests.faults.serving postgres|valkey FOLDER PORT`: one server, whose end is this process's end too."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from launcher import kernel
from launcher.child import Child
from launcher.postgres import Postgres
from launcher.valkey import Valkey

PASSWORD = "SERVER_PASSWORD"  # the environment variable's name
KINDS: Mapping[str, type[Postgres | Valkey]] = {"postgres": Postgres, "valkey": Valkey}
LOOK_EVERY_S = 0.05


def pid_file(folder: Path) -> Path:
    """Holds the server's own process id, once it answers."""
    return folder / "pid"


def main() -> None:
    """Serve over the folder's data, made at the first start, with its log in the folder; leaves by `SystemExit`."""
    kind, place, port = sys.argv[1:]
    folder = Path(place)
    kernel.signal_at_parent_death(signal.SIGTERM)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    child = KINDS[kind](folder, os.environ[PASSWORD], folder / "server.log", port=int(port)).start()
    try:
        _stay_with(child, folder)
    finally:
        if child.lives:
            child.stop()
    sys.exit(1)


def _stay_with(child: Child, folder: Path) -> None:
    draft = pid_file(folder).with_suffix(".new")
    draft.write_text(str(child.pid))
    draft.rename(pid_file(folder))
    while child.lives:
        time.sleep(LOOK_EVERY_S)


if __name__ == "__main__":
    main()
