"""A source's files, checked, in a folder."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

from inference.sources import hub, local, s3_folder
from inference.sources.choice import Choice
from inference.sources.errors import storing_in
from inference.sources.manifest import Manifest
from inference.sources.order import Fetched, OnProgress, Order
from inference.sources.progress import Progress
from inference.sources.source import Kind, Source
from inference.sources.turns import one_at_a_time


def fetch(
    source: Source,
    revision: str = "",
    *,
    cache: Path,
    expected: Manifest | None = None,
    on_progress: OnProgress = lambda _done_bytes, _total_bytes: None,
) -> Fetched:
    """A whole model, for a worker; `fetched.revision` and `.manifest` are what brings the same files again.

    `on_progress` hears bytes done and bytes in all, from several threads. Raises `SourceError`.
    """
    order = Order(source, revision, cache.absolute(), Choice.WHOLE, expected)
    return _checked(order, _obtained(order, on_progress))


def fetch_prompt_files(source: Source, revision: str = "", *, cache: Path, expected: Manifest | None = None) -> Path:
    """A folder with at least the small files that prompts are made by, for a web process. Raises `SourceError`.

    `expected` is the whole model's manifest.
    """
    part = expected.only(Choice.PROMPT.takes) if expected else None
    order = Order(source, revision, cache.absolute(), Choice.PROMPT, part)
    if source.kind is Kind.LOCAL:
        return _checked(order, local.obtain_prompt_files(order)).folder
    return _checked(order, _obtained(order, lambda _done_bytes, _total_bytes: None)).folder


def _checked(order: Order, fetched: Fetched) -> Fetched:
    if order.expected:
        order.expected.check(fetched.manifest)
    return fetched


def _obtained(order: Order, on_progress: OnProgress) -> Fetched:
    place, *others = _places(order)
    with storing_in(order.cache):
        if order.source.kind is Kind.S3:
            s3_folder.check_revision(order)
            if found := s3_folder.at_hand(order, [place, *others]):
                return found
        with one_at_a_time(place / "lock", on_progress) as tell:
            return _obtain(order, place, Progress(tell))


def _obtain(order: Order, place: Path, progress: Progress) -> Fetched:
    match order.source.kind:
        case Kind.LOCAL:
            return local.obtain(order, place, progress)
        case Kind.HUB:
            return hub.obtain(order, place, progress)
        case Kind.S3:
            return s3_folder.obtain(order, place, progress)


def _places(order: Order) -> Sequence[Path]:
    """Where the cache keeps what belongs to this order, and where to look besides."""
    readable = re.sub(r"[^A-Za-z0-9._-]+", "--", str(order.source).replace("://", "--").strip("/"))[-80:]
    told_apart = hashlib.sha256(str(order.source).encode()).hexdigest()[:8]
    ours = order.cache / f"{readable}--{told_apart}"
    return [ours / order.choice, *(ours / other for other in Choice if other is not order.choice)]
