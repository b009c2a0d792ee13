"""What is written to a run's stream, or said to its worker, by somebody who is not that worker.

Robust: with the streams away a log line is all, since the rows say the same and readers and workers ask them too.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any, cast
from uuid import UUID

from django.conf import settings
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import ResponseError
from redis.retry import Retry

from chat import endings
from chat.emitted import Emitted
from chat.models import Run
from inference.servers import AWAY, away_as_lost, blocking
from inference.streams import (
    ENDED_TTL_S,
    PAGE_ENTRIES,
    RUNNING_TTL_S,
    Entry,
    EntryId,
    Event,
    Reset,
    Started,
    control_channel,
    entry,
    fields,
    run_key,
)

logger = logging.getLogger(__name__)

# Somebody waits for the answer to a request meanwhile.
TIMEOUT_S = 1.0
# What was deleted is kept no longer than its readers need to see the end.
DELETED_TTL_S = 60


def nudge(worker: str, run_id: UUID) -> None:
    """Tell a worker to look at a run that it is to stop."""
    with _robustly("nudge", run_id):
        _client().publish(control_channel(worker), str(run_id))


def take_over(run: Run) -> Emitted:
    """Fence off the attempts before the run's present one, and read what readers were told until then.

    Safe to repeat.
    """
    entries: list[Entry] = []
    with _robustly("take_over", run.pk):
        # A fence that stands already, since a reply was lost or the rows failed, is refused: no reason not to read.
        with suppress(ResponseError):
            _append(run.pk, EntryId.fence(run.attempt), Started(run.attempt, run.model_id), RUNNING_TTL_S)
        entries += _entries(run.pk)
    return Emitted.in_stream(entries, run.resumptions)


def untold(ended: Iterable[Run]) -> list[Run]:
    """Those of the ended runs whose stream lacks its last entry. Raises `RedisError`."""
    runs = list(ended)
    pipeline = _client().pipeline(transaction=False)
    for run in runs:
        pipeline.xrevrange(run_key(run.pk), count=1)
    with away_as_lost():
        last = pipeline.execute()
    # One without a stream has no readers to tell.
    return [run for run, newest in zip(runs, last, strict=True) if newest and not _is_end(run, newest)]


def _is_end(run: Run, newest: list[tuple[bytes, object]]) -> bool:
    return EntryId.parse(newest[0][0]) >= EntryId.terminal(run.attempt)


def tell_end(run: Run, text: str, ttl_s: int = ENDED_TTL_S) -> None:
    """The last entry of a run that has ended with `text`."""
    with _robustly("tell_end", run.pk):
        _append(run.pk, EntryId.terminal(run.attempt), endings.ended(run, text), ttl_s)


def tell_deletion(run: Run) -> None:
    """The end of a run whose text is gone: what readers have of it is void."""
    with _robustly("tell_deletion", run.pk):
        _append(run.pk, EntryId(run.attempt, 1), Reset(0), DELETED_TTL_S)
    tell_end(run, "", DELETED_TTL_S)


def forget(run_ids: Collection[UUID]) -> None:
    """Drop the streams of runs that were deleted, which have their text."""
    if run_ids:
        with _robustly("forget", next(iter(run_ids))):
            drop(run_ids)


def drop(run_ids: Collection[UUID]) -> None:
    """Drop the streams of runs. Raises `RedisError`."""
    if run_ids:
        with away_as_lost():
            _client().unlink(*map(run_key, run_ids))


def _append(run_id: UUID, entry_id: EntryId, event: Event, ttl_s: int) -> None:
    pairs = cast(dict[Any, Any], fields(event))  # redis-py's key type is invariant
    pipeline = _client().pipeline(transaction=False)
    pipeline.xadd(run_key(run_id), pairs, id=str(entry_id))
    pipeline.expire(run_key(run_id), ttl_s, lt=True)
    pipeline.execute()


def _entries(run_id: UUID) -> Iterator[Entry]:
    start = "-"
    while True:
        rows = cast(
            list[tuple[bytes, dict[bytes, bytes]]], _client().xrange(run_key(run_id), min=start, count=PAGE_ENTRIES)
        )
        yield from (entry(*row) for row in rows)
        if len(rows) < PAGE_ENTRIES:
            return
        start = f"({rows[-1][0].decode()}"


def _client() -> Redis:
    return _connected(settings.STREAMS_URL)


@lru_cache
def _connected(url: str) -> Redis:
    # Once more, at once: a pooled connection may have died since it was last used. An entry that is there is refused.
    retry = Retry(NoBackoff(), retries=1)
    return blocking(url, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S, retry=retry)


@contextmanager
def _robustly(act: str, of: UUID) -> Iterator[None]:
    try:
        yield
    except AWAY as error:
        logger.warning("streams.%s_failed of=%s error=%s", act, of, type(error).__name__)
