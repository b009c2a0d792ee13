"""What the environment says about `make run`."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from launcher.problems import SetupProblem

LOOPBACK = ("127.0.0.1", "localhost", "::1")
EVERYWHERE = ("0.0.0.0", "::")


@dataclass(frozen=True)
class Options:
    """Where to listen, how many workers, which engine and model."""

    host: str
    port: int
    workers: int
    engine: str
    model: str | None

    @classmethod
    def read(cls, environ: Mapping[str, str] = os.environ) -> Options:
        """Raises `SetupProblem` when a value makes no sense."""
        return cls(
            host=environ.get("HOST") or "127.0.0.1",
            port=_number(environ, "PORT", default=8000, most=65535),
            workers=_number(environ, "WORKERS", default=1, most=256),
            engine=environ.get("ENGINE") or "vllm",
            model=environ.get("MODEL") or None,
        )

    @property
    def address(self) -> str:
        """Where a browser on this machine finds the web tier."""
        host = "127.0.0.1" if self.host in EVERYWHERE else self.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    @property
    def allowed_hosts(self) -> str:
        """Names by which the web tier may be called."""
        further = [] if self.host in LOOPBACK else [socket.gethostname() if self.host in EVERYWHERE else self.host]
        return ",".join(["127.0.0.1", "localhost", "[::1]", *further])

    def check_port_is_free(self) -> None:
        """Raises `SetupProblem` when we could not listen there."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((self.host, self.port))
            except (OSError, UnicodeError) as error:
                reason = getattr(error, "strerror", None) or error
                raise SetupProblem(
                    f"cannot listen on {self.host} port {self.port} ({reason})",
                    "Stop what listens there, or choose another port: make run PORT=8080",
                ) from error


def _number(environ: Mapping[str, str], name: str, default: int, most: int) -> int:
    given = environ.get(name) or str(default)
    if not given.isascii() or not given.isdigit() or not 1 <= int(given) <= most:
        raise SetupProblem(f"{name}={given} is not a number from 1 to {most}", f"Try: make run {name}={default}")
    return int(given)
