"""`python deploy/ready.py WHAT`: wait until a process has come up. For whatever starts the next one behind it."""

from __future__ import annotations

import argparse
import sys
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path

LOOK_EVERY_S = 0.2
ANSWER_S = 4.0  # the probe itself has an answer within three


def is_ready(what: str) -> bool:
    """Whether an address answers 200, or a file is there."""
    if not what.startswith("http://"):
        return Path(what).exists()
    try:
        with urllib.request.urlopen(what, timeout=ANSWER_S) as answer:  # noqa: S310  # http, as was looked at
            return bool(answer.status == 200)
    except OSError:
        return False


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when it is ready, 1 when it was not in time."""
    parser = argparse.ArgumentParser(prog="python deploy/ready.py", description="Wait until a process has come up.")
    parser.add_argument("what", help="such as http://127.0.0.1:8000/readyz, or the path of a READY_FILE")
    parser.add_argument("--within", type=float, default=0.0, metavar="S", help="0: look once")
    options = parser.parse_args(arguments)
    ends_at = time.monotonic() + options.within
    while not (ready := is_ready(options.what)) and time.monotonic() < ends_at:
        time.sleep(LOOK_EVERY_S)
    return int(not ready)


if __name__ == "__main__":
    sys.exit(main())
