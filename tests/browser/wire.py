"""A wire between a browser and the product that can go dead: open connections hang without a word, new ones work."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import Thread

PIECE_BYTES = 65_536
# A browser would use what it kept open again, and find out one by one, each after a while, that they are dead.
KEEPING, CLOSING = b"Connection: keep-alive", b"Connection: close"


class Wire(ThreadingTCPServer):
    """Passes on what comes either way, at a port of its own."""

    daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.port = port
        self.cuts = 0

    @property
    def address(self) -> str:
        """Of the near end."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def cut(self) -> None:
        """From now on nothing more comes through the connections that are open."""
        self.cuts += 1


class _Connection(BaseRequestHandler):
    server: Wire
    used: int | None = None  # how many cuts there had been by its first byte: a browser opens spare ones before

    def handle(self) -> None:
        with socket.create_connection(("127.0.0.1", self.server.port)) as far:
            back = Thread(target=self._carry, args=(far, self.request), daemon=True)
            back.start()
            self._carry(self.request, far)
            back.join()

    @property
    def _is_dead(self) -> bool:
        return self.used not in {None, self.server.cuts}

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while piece := source.recv(PIECE_BYTES):
                self.used = self.server.cuts if self.used is None else self.used
                if not self._is_dead:
                    target.sendall(piece.replace(KEEPING, CLOSING))
            if not self._is_dead:
                target.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # one end has gone: the other will notice


@contextmanager
def wire_to(port: int) -> Iterator[Wire]:
    """A wire to that port, until the block ends."""
    with Wire(port) as wire:
        serving = Thread(target=wire.serve_forever, daemon=True)
        serving.start()
        try:
            yield wire
        finally:
            wire.shutdown()
            serving.join()
