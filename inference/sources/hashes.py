"""sha256 of a folder's files, remembered by size, mtime and inode as git's index does."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock

from inference.sources.errors import NotServable
from inference.sources.manifest import File, Manifest

THREADS = 4
PIECE_BYTES = 1 << 20
SAVE_S = 1.0
# A file that was written in the moment of the look can change again without a new mtime: git calls it racy.
SETTLED_S = 2.0

Fingerprint = list[int]


class Hashes:
    """What is known of a folder's files, kept in a file so that a restart only calls `stat`."""

    def __init__(self, kept_in: Path) -> None:
        self._kept_in = kept_in
        self._known = _read(kept_in)
        self._lock = Lock()
        self._saved_at = time.monotonic()
        self._unsaved = False

    def known(self, folder: Path, name: str) -> File | None:
        """The file as it was hashed or written, unless it has changed since, or is not there."""
        try:
            fingerprint, sha256 = self._known[name]
            same = _fingerprint(folder / name) == fingerprint
        except (KeyError, OSError):
            return None
        return File(name, fingerprint[0], sha256) if same else None

    def remember(self, path: Path, sha256: str) -> File:
        """A file that this process has just written."""
        fingerprint = _fingerprint(path)
        with self._lock:
            self._known[path.name] = (fingerprint, sha256)
            self._unsaved = True
            due = time.monotonic() > self._saved_at + SAVE_S
        if due:
            self.save()
        return File(path.name, fingerprint[0], sha256)

    def manifest(self, folder: Path, names: Iterable[str], add: Callable[[int], None]) -> Manifest:
        """Of these files; `add` hears how many bytes are done. Raises `NotServable`, `OSError`."""
        try:
            with ThreadPoolExecutor(THREADS, "hash") as threads:
                return Manifest.of(threads.map(lambda name: self._file(folder, name, add), names))
        finally:
            self.save()

    def save(self) -> None:
        """Keep what is known, whole or not at all. Raises `OSError`."""
        with self._lock:
            if not self._unsaved:
                return
            text = json.dumps(self._known)
            draft = self._kept_in.with_name(f"{self._kept_in.name}.{os.getpid()}.new")
            draft.write_text(text)
            draft.rename(self._kept_in)
            self._saved_at, self._unsaved = time.monotonic(), False

    def _file(self, folder: Path, name: str, add: Callable[[int], None]) -> File:
        if known := self.known(folder, name):
            add(known.size_bytes)
            return known
        path = folder / name
        before = _fingerprint(path)
        sha256 = sha256_of(path, add)
        settled = time.time_ns() - before[1] > SETTLED_S * 1e9
        if settled and _fingerprint(path) == before:
            return self.remember(path, sha256)
        return File(name, path.stat().st_size, sha256)


def sha256_of(path: Path, add: Callable[[int], None] = lambda _: None) -> str:
    """In hex. Raises `NotServable`."""
    digest = hashlib.sha256()
    try:
        with path.open("rb", buffering=0) as file:
            piece = memoryview(bytearray(PIECE_BYTES))
            while count := file.readinto(piece):
                digest.update(piece[:count])
                add(count)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise NotServable(f"{path} cannot be read ({reason})", "See to its owner and its disk.") from error
    return digest.hexdigest()


def _fingerprint(path: Path) -> Fingerprint:
    stat = path.stat()
    return [stat.st_size, stat.st_mtime_ns, stat.st_ino]


def _read(path: Path) -> dict[str, tuple[Fingerprint, str]]:
    try:
        stored = json.loads(path.read_bytes())
        return {
            str(name): ([int(n) for n in fingerprint], str(sha256)) for name, (fingerprint, sha256) in stored.items()
        }
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
