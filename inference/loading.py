"""From a version's source to an engine that answers, each step told to the roster."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from inference.attendance import Attendance, Phase
from inference.engine import Engine
from inference.host import ServedModel
from inference.probe import probe
from inference.sources import Fetched, Manifest, Source, fetch
from inference.tokens import Tokenizer

TELL_S = 1.0
MEGABYTE = 1_000_000


def fetched(served: ServedModel, cache: Path, attendance: Attendance) -> Fetched:
    """Its files on this machine, which are those that the version was made with. Raises `SourceError`. In a thread."""
    attendance.now(Phase.FETCHING)
    expected = Manifest.from_json(served.manifest) if served.manifest else None
    source = Source.parse(served.source)
    return fetch(source, served.revision, cache=cache, expected=expected, on_progress=_Progress(attendance))


@asynccontextmanager
async def loaded(
    build: Callable[[Tokenizer], Engine], files: Fetched, attendance: Attendance
) -> AsyncIterator[tuple[Engine, Tokenizer]]:
    """The engine, started and probed, and the tokenizer; stopped at the end.

    Raises `EngineDead`, `ProbeFailed`, `TokensError`, `ValueError`.
    """
    attendance.now(Phase.LOADING)
    tokenizer = Tokenizer.load(files.folder)
    engine = build(tokenizer)
    try:
        await engine.start()
        attendance.now(Phase.PROBING)
        await probe(engine, tokenizer)
        yield engine, tokenizer
    finally:
        await engine.stop()


class _Progress:
    """Tells how much is fetched, once a second at most."""

    def __init__(self, attendance: Attendance) -> None:
        self._attendance = attendance
        self._told_at = 0.0

    def __call__(self, done_bytes: int, total_bytes: int) -> None:
        if time.monotonic() >= self._told_at + TELL_S:
            self._told_at = time.monotonic()
            detail = f"{done_bytes // MEGABYTE:,} of {total_bytes // MEGABYTE:,} MB"
            self._attendance.now(Phase.FETCHING, detail)
