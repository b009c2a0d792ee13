"""A wire to a server that counts what it carries, and can be slow or do something in mid-stream."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import suppress
from threading import Lock, Thread


class Wire:
    """Forwards connections of loopback to a port, bytes as they are."""

    def __init__(self, to_port: int) -> None:
        self._to_port = to_port
        self._server = socket.create_server(("127.0.0.1", 0))
        self._lock = Lock()
        self.gets = 0
        self.carried_bytes = 0
        self.pause_s = 0.0
        self._at: tuple[int, Callable[[], None]] | None = None
        Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        """Where it begins."""
        port: int = self._server.getsockname()[1]
        return f"http://127.0.0.1:{port}"

    def once_carried(self, count_bytes: int, act: Callable[[], None]) -> None:
        """Do it when the server has sent so many bytes, counted from now, and break that connection."""
        self.carried_bytes = self.gets = 0
        self._at = (count_bytes, act)

    def count_anew(self) -> None:
        """From now on."""
        self.carried_bytes = self.gets = 0

    def close(self) -> None:
        """No new connections."""
        self._server.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._server.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self._to_port))
            except OSError:
                near.close()
                continue
            Thread(target=self._connect, args=(near, far), daemon=True).start()

    def _connect(self, near: socket.socket, far: socket.socket) -> None:
        with near, far:
            asking = Thread(target=self._carry, args=(near, far, self._asked), daemon=True)
            asking.start()
            self._carry(far, near, self._answered)
            asking.join()

    def _carry(self, source: socket.socket, sink: socket.socket, count: Callable[[bytes], None]) -> None:
        try:
            while piece := source.recv(65536):
                count(piece)
                sink.sendall(piece)
        except OSError:
            pass
        finally:
            for end in (source, sink):
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def _asked(self, piece: bytes) -> None:
        with self._lock:
            self.gets += piece.count(b"GET /")

    def _answered(self, piece: bytes) -> None:
        time.sleep(self.pause_s)
        with self._lock:
            self.carried_bytes += len(piece)
            due = self._at is not None and self.carried_bytes >= self._at[0]
            act, self._at = (self._at[1], None) if due and self._at else (None, self._at)
        if act:
            act()
            # What is still on its way when a machine dies does not arrive.
            raise ConnectionResetError
