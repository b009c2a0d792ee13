"""A server that runs as our own child, in the foreground."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from launcher import kernel
from launcher.account import Identity
from launcher.problems import SetupProblem

STOPS_WITHIN_S = 4
PORTS = range(15_000, 32_000)


@dataclass(frozen=True)
class How:
    """Particulars of a server."""

    stop_with: signal.Signals
    folder: Path = Path("/")
    identity: Identity = field(default_factory=Identity)


class Child:
    """A running server; dies when we do."""

    def __init__(self, name: str, command: list[str], log: Path, how: How) -> None:
        self.name = name
        self._log = log
        self._stop_with = how.stop_with
        clean = {key: os.environ[key] for key in ("PATH", "LD_LIBRARY_PATH") if key in os.environ}
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                command,
                cwd=how.folder,
                env={**clean, "LC_ALL": "C", "TZ": "UTC"},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                # Runs after the change of user, which would disarm it.
                preexec_fn=lambda: kernel.signal_at_parent_death(self._stop_with),  # noqa: PLW1509  # we have no threads
                **how.identity,
            )

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    @property
    def lives(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    def must_live(self) -> None:
        """Raises `SetupProblem` when it has ended."""
        if not self.lives:
            raise SetupProblem(f"{self.name} ended by itself", f"The reason is at the end of {self._log}")

    def stop(self) -> None:
        """End it in order, by force when that takes too long."""
        self._process.send_signal(self._stop_with)
        try:
            self._process.wait(STOPS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.wait()


def free_port() -> int:
    """A loopback port that nobody listens on now.

    Below those that Linux gives to outgoing connections: while its server is not there, a port of theirs may become the
    other end of somebody's connection, of one to itself even, and the server cannot have it.
    """
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise SetupProblem(
        f"no port is free on 127.0.0.1 from {PORTS[0]} to {PORTS[-1]}",
        "Stop what holds them, and run the same command again.",
    )
