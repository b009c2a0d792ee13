"""`python -m chatsite.serve`: the web process."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import errno
import gc
import resource
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import uvicorn

from chatsite.asgi import Application, application

# For a request to end, when all are told to.
GRACE_S = 5
# New objects until they are looked at for cycles, and how many such looks until the older ones are. Events make none:
# with Python's own 700, 10, 10 the p99 of many live streams was twice to three times as long.
COLLECT_AFTER = (50_000, 20, 50)
# How long a thread may keep the interpreter from others that wait. The event loop is one of thirteen, and all streams
# and answers go through it: with Python's own 5 ms, at 25 and 50 questions a second, first words came much later.
SWITCH_S = 0.001


class Server(uvicorn.Server):
    """uvicorn, except that it does not wait for streams: they end at once, and their readers resume elsewhere.

    Clients whose connection is the request cannot: their answers have `WEB_DRAIN_S` to end.
    """

    def __init__(self, config: uvicorn.Config, served: Application) -> None:
        super().__init__(config)
        self._served = served

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to serve, with what is there by now left alone by the garbage collector."""
        await super().startup(sockets)
        sys.setswitchinterval(SWITCH_S)
        gc.collect()
        gc.freeze()
        gc.set_threshold(*COLLECT_AFTER)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, end streams, let requests finish."""
        self._served.end_streams()
        ending = asyncio.get_running_loop().call_later(_drain_s(), self._served.end_requests)
        await super().shutdown(sockets)
        ending.cancel()


class CannotListen(Exception):
    """The address is not to be had; the text says why and what to do."""


def listen(host: str, port: int) -> socket.socket:
    """A socket bound to the address. Raises `CannotListen`."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as failure:
        raise CannotListen(f"cannot listen on {host}:{port}: {_cure(failure)}") from failure
    return bound


def listen_uds(path: Path) -> socket.socket:
    """A Unix socket at `path`, in place of a left-over one. Raises `CannotListen`."""
    if path.is_socket():
        with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(ConnectionRefusedError):
            probe.connect(str(path))
            raise CannotListen(f"cannot listen on {path}: another process does")
        path.unlink()
    bound = socket.socket(socket.AF_UNIX)
    try:
        bound.bind(str(path))
    except OSError as failure:
        raise CannotListen(f"cannot listen on {path}: {failure}") from failure
    return bound


def _cure(failure: OSError) -> str:
    match failure.errno:
        case errno.EADDRINUSE:
            return "the port is taken; stop what holds it, or choose another"
        case errno.EACCES:
            return "not allowed; choose a port above 1023"
        case _:
            return str(failure.strerror or failure)


def raise_open_files() -> None:
    """Allow as many open streams as the hard limit does; the usual soft one ends at 1,024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def configured() -> uvicorn.Config:
    """How uvicorn serves us: with uvloop and httptools where they are installed."""
    behind_proxy = _is_behind_proxy()
    return uvicorn.Config(
        application,
        lifespan="on",
        ws="none",  # there are none: an upgrade is not taken up
        access_log=False,
        log_level="warning",
        log_config=None,
        server_header=False,
        timeout_graceful_shutdown=_drain_s() + GRACE_S,
        proxy_headers=behind_proxy,
        forwarded_allow_ips="*" if behind_proxy else None,
    )


def _is_behind_proxy() -> bool:
    from django.conf import settings

    return settings.SECURE_PROXY_SSL_HEADER is not None


def _drain_s() -> int:
    from django.conf import settings

    return int(settings.WEB_DRAIN_S)


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m chatsite.serve", description="Serve pages, API and streams.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--uds", type=Path, help="listen on this Unix socket instead")
    return parser.parse_args(arguments)


def main() -> None:
    """Serve until SIGTERM or SIGINT; exits 1 with one line when the address is not to be had."""
    options = parsed()
    try:
        bound = listen_uds(options.uds) if options.uds else listen(options.host, options.port)
    except CannotListen as refusal:
        sys.exit(str(refusal))
    raise_open_files()
    Server(configured(), application).run(sockets=[bound])


if __name__ == "__main__":
    main()
