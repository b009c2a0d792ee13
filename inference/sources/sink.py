"""Where a download's parts go, each to its own place in a file."""

from __future__ import annotations

from threading import Event
from typing import BinaryIO


class Stopped(Exception):
    """Another file's failure ended the fetch."""


class Sink:
    """A file as s3transfer writes to it, until the fetch is given up.

    It can seek. One that cannot is given its parts in order, whereupon s3transfer 0.19 waits for itself for ever with
    a file of more parts than it holds in memory: the first one keeps its place until all others have one.
    """

    def __init__(self, file: BinaryIO, stop: Event) -> None:
        self._file = file
        self._stop = stop

    def seekable(self) -> bool:
        """By which the transfer manager decides."""
        return True

    def tell(self) -> int:
        """Likewise."""
        return self._file.tell()

    def seek(self, offset: int, whence: int = 0) -> int:
        """To a part's place."""
        return self._file.seek(offset, whence)

    def write(self, piece: bytes) -> int:
        """Raises `OSError`, and `Stopped` when the fetch is given up."""
        if self._stop.is_set():
            raise Stopped
        return self._file.write(piece)
