"""A bucket's objects as a folder of the cache, made whole or not at all.

CACHE/s3--bucket--prefix--…/whole/LISTING/model/      the files, once all are there
                                 /LISTING/hashes.json  what they are
                                 /LISTING.draft/       the same while it is made: goes on where it stopped
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from threading import Event

from inference.sources import weights
from inference.sources.choice import Choice
from inference.sources.errors import BadSource, DiskFull
from inference.sources.hashes import Hashes, sha256_of
from inference.sources.manifest import File, Manifest
from inference.sources.order import Fetched, Order
from inference.sources.progress import Progress
from inference.sources.s3 import Bucket, Listed
from inference.sources.s3_errors import changed_meanwhile
from inference.sources.sink import Sink

FILES_AT_ONCE = 4


def check_revision(order: Order) -> None:
    """Raises `BadSource`: buckets have none that all servers know; what is fetched is pinned by its digest."""
    if order.revision:
        raise BadSource(
            "a bucket has no revisions", "Leave the revision empty, and give each version a prefix of its own."
        )


def at_hand(order: Order, places: Sequence[Path]) -> Fetched | None:
    """What is expected, if an earlier fetch left it in one of these places; asks no server, only `stat`."""
    if order.expected is None:
        return None
    names = [file.name for file in order.expected.files]
    for folder in _whole_folders(places):
        if _untouched(folder, names) == order.expected:
            return Fetched(folder / "model", order.expected)
    return None


def obtain(order: Order, place: Path, progress: Progress) -> Fetched:
    """List, fetch what is not there yet, and give the whole folder its name. Raises `SourceError`, `OSError`."""
    with Bucket(order.source) as bucket:
        listed = bucket.list()
        order.check_sizes({entry.name: entry.size_bytes for entry in listed})
        wanted = sorted(entry for entry in listed if order.choice.takes(entry.name))
        folder = place / _listing_id(wanted)
        progress.begin(sum(entry.size_bytes for entry in wanted))
        names = [entry.name for entry in wanted]
        if manifest := _untouched(folder, names):
            progress.add(manifest.size_bytes)
            return Fetched(folder / "model", manifest)
        if folder.exists():  # somebody changed its files: mend it
            shutil.rmtree(_draft(folder), ignore_errors=True)
            folder.rename(_draft(folder))
        manifest = _fill(order, bucket, _draft(folder), wanted, progress)
    _draft(folder).rename(folder)
    for stale in place.glob("*.draft"):
        shutil.rmtree(stale, ignore_errors=True)
    return Fetched(folder / "model", manifest)


def _fill(order: Order, bucket: Bucket, draft: Path, wanted: Sequence[Listed], progress: Progress) -> Manifest:
    (draft / "model").mkdir(parents=True, exist_ok=True)
    manifest = Filling(order, bucket, draft, progress).fill(wanted)
    if order.choice is Choice.WHOLE:
        weights.check(draft / "model")
    return manifest


def _draft(folder: Path) -> Path:
    return folder.with_name(folder.name + ".draft")


class Filling:
    """Downloads into a draft, several files side by side, smallest first, each hashed when it is there."""

    def __init__(self, order: Order, bucket: Bucket, draft: Path, progress: Progress) -> None:
        self._order = order
        self._bucket = bucket
        self._folder = draft / "model"
        self._hashes = Hashes(draft / "hashes.json")
        self._progress = progress
        self._stop = Event()

    def fill(self, wanted: Sequence[Listed]) -> Manifest:
        """The first failure stops them all; what is complete is kept. Raises `SourceError`, `OSError`."""
        self._check_room(wanted)
        threads = ThreadPoolExecutor(FILES_AT_ONCE, "s3")
        try:
            files = [threads.submit(self._file, listed) for listed in wanted]
            wait(files, return_when=FIRST_EXCEPTION)
            failures = [error for file in files if file.done() and (error := file.exception())]
            if failures:
                raise failures[0]
            return Manifest.of(file.result() for file in files)
        finally:
            self._stop.set()
            threads.shutdown(cancel_futures=True)
            self._hashes.save()

    def _check_room(self, wanted: Sequence[Listed]) -> None:
        missing = sum(listed.size_bytes for listed in wanted if not self._hashes.known(self._folder, listed.name))
        free = shutil.disk_usage(self._folder).free
        if free < missing:
            raise DiskFull(
                f"{missing / 1e9:.1f} GB of {self._order.source} are to be fetched, and {free / 1e9:.1f} GB are free",
                f"Free some space in {self._order.cache}, or set MODEL_CACHE to a larger disk.",
            )

    def _file(self, listed: Listed) -> File:
        if known := self._hashes.known(self._folder, listed.name):
            self._progress.add(known.size_bytes)
            return self._as_expected(known)
        part = self._folder / f"{listed.name}.part"
        with part.open("wb") as file:
            self._bucket.download(listed, Sink(file, self._stop), self._progress.add)
            file.flush()
            os.fsync(file.fileno())
        if part.stat().st_size != listed.size_bytes:
            raise changed_meanwhile()
        path = part.rename(self._folder / listed.name)
        return self._as_expected(self._hashes.remember(path, sha256_of(path)))

    def _as_expected(self, file: File) -> File:
        if self._order.expected:
            self._order.expected.check_file(file)
        return file


def _untouched(folder: Path, names: Sequence[str]) -> Manifest | None:
    """The manifest of these files, if all are there as they were written."""
    hashes = Hashes(folder / "hashes.json")
    known = [hashes.known(folder / "model", name) for name in names]
    found = Manifest.of(file for file in known if file)
    return found if len(found.files) == len(names) else None


def _listing_id(wanted: Sequence[Listed]) -> str:
    listing = json.dumps([[entry.name, entry.size_bytes, entry.etag] for entry in wanted])
    return hashlib.sha256(listing.encode()).hexdigest()[:16]


def _whole_folders(places: Sequence[Path]) -> Iterator[Path]:
    for place in places:
        yield from (folder for folder in place.glob("*") if folder.is_dir() and folder.suffix != ".draft")
