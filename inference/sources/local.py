"""Folders of this machine, or mounted on it: used in place, never copied."""

from __future__ import annotations

from pathlib import Path

from inference.sources import weights
from inference.sources.errors import BadSource
from inference.sources.hashes import Hashes, sha256_of
from inference.sources.manifest import File, Manifest
from inference.sources.order import Fetched, Order
from inference.sources.progress import Progress


def obtain(order: Order, place: Path, progress: Progress) -> Fetched:
    """The folder itself, hashed where it changed since the last time. Raises `SourceError`, `OSError`."""
    folder, sizes = _sizes(order)
    if not order.expected:
        weights.check(folder)
    progress.begin(sum(sizes.values()))
    return Fetched(folder, Hashes(place / "hashes.json").manifest(folder, sizes, progress.add))


def obtain_prompt_files(order: Order) -> Fetched:
    """The folder itself; its few small files are hashed each time, so that no cache is needed. Raises `SourceError`."""
    folder, sizes = _sizes(order)
    return Fetched(folder, Manifest.of(File(name, size, sha256_of(folder / name)) for name, size in sizes.items()))


def _sizes(order: Order) -> tuple[Path, dict[str, int]]:
    if order.revision:
        raise BadSource("a folder has no revisions", "Leave the revision empty: the digest says which files are meant.")
    folder = Path(order.source.name)
    found = weights.names_in(folder)
    order.check_sizes(found)
    return folder, {name: size for name, size in found.items() if order.choice.takes(name)}
