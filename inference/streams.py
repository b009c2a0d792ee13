"""The stream of a run's events in Redis: its keys, its ids, and what an entry holds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, cast
from uuid import UUID

from redis.asyncio import Redis

SHARDS = 64
# Terminal entries stand at a fixed id, so that adding one again is refused instead of repeated. It fits 32 bits, as
# django-eventstream wants one integer an id: attempt << 32 | seq.
TERMINAL_SEQ = 0xFFFF_FFFF
# A net far above any output cap: a live stream is bounded by the cap, never trimmed under a reader.
MAX_ENTRIES = 200_000
PAGE_ENTRIES = 1000
RUNNING_TTL_S = 6 * 3600
ENDED_TTL_S = 3600


def shard(run_id: UUID) -> int:
    """Which of the tags a run's stream has."""
    return run_id.int % SHARDS


def run_key(run_id: UUID) -> str:
    """The key of a run's stream; the tag lets a cluster spread them over its nodes."""
    return f"run:{{{shard(run_id):02d}}}:{run_id}"


def hub_key(reader_id: UUID, of_shard: int | None = None) -> str:
    """The key of a web process's own stream, to which it adds only to wake its blocked reader, of one tag or of all."""
    return f"hub:{reader_id}" if of_shard is None else f"hub:{{{of_shard:02d}}}:{reader_id}"


def control_channel(worker_name: str) -> str:
    """The channel on which a worker hears the ids of runs that it is to stop."""
    return f"control:{worker_name}"


class MalformedId(ValueError):
    """Not an entry id of ours."""


@dataclass(frozen=True, slots=True, order=True)
class EntryId:
    """`<attempt>-<seq>`. Redis refuses an id at or below a stream's last, which fences off older attempts."""

    attempt: int
    seq: int

    def __str__(self) -> str:
        return f"{self.attempt}-{self.seq}"

    @classmethod
    def parse(cls, text: str | bytes) -> Self:
        """Read `<attempt>-<seq>`. Raises `MalformedId`."""
        raw = text.decode("ascii", "replace") if isinstance(text, bytes) else text
        attempt, dash, seq = raw.partition("-")
        if not (dash and _is_number(attempt) and _is_number(seq)):
            raise MalformedId(raw[:64])
        entry = cls(int(attempt), int(seq))
        if entry.attempt > TERMINAL_SEQ or entry.seq > TERMINAL_SEQ:
            raise MalformedId(raw[:64])
        return entry

    @classmethod
    def fence(cls, attempt: int) -> Self:
        """The first entry of an attempt."""
        return cls(attempt, 0)

    @classmethod
    def terminal(cls, attempt: int) -> Self:
        """The last entry of a run that ended in `attempt`."""
        return cls(attempt, TERMINAL_SEQ)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 10


@dataclass(frozen=True, slots=True)
class Started:
    """An attempt began: those before it write no more."""

    attempt: int
    model: str


@dataclass(frozen=True, slots=True)
class Delta:
    """New text at `offset` code points, and all token ids since the last entry, those of unfinished characters too."""

    text: str
    offset: int
    token_ids: Sequence[int] = ()

    @property
    def end(self) -> int:
        """The offset behind this text."""
        return self.offset + len(self.text)


@dataclass(frozen=True, slots=True)
class Reset:
    """The text from `offset` on is void."""

    offset: int


@dataclass(frozen=True, slots=True)
class Ended:
    """The run is over: `status` is `done`, `cancelled` or `failed`; `data` is the event's JSON object."""

    status: str
    data: Mapping[str, Any]


Event = Started | Delta | Reset | Ended


@dataclass(frozen=True, slots=True)
class Entry:
    """One event of a run, at its place."""

    id: EntryId
    event: Event


# Field names are one letter and constant: Redis stores repeated names once a node (20 bytes an entry, JSON takes 54).
def fields(event: Event) -> dict[str, str | int]:
    """What XADD stores of an event."""
    match event:
        case Started(attempt, model):
            return {"k": "started", "a": attempt, "m": model}
        case Delta(text, offset, token_ids):
            return {"k": "delta", "t": text, "o": offset, "i": ",".join(map(str, token_ids))}
        case Reset(offset):
            return {"k": "reset", "o": offset}
        case Ended(status, data):
            return {"k": status, "d": json.dumps(data, ensure_ascii=False, separators=(",", ":"))}


def entry(raw_id: bytes, raw: Mapping[bytes, bytes]) -> Entry:
    """The reverse of `fields`, from what Redis answers."""
    return Entry(EntryId.parse(raw_id), _event(raw))


def _event(raw: Mapping[bytes, bytes]) -> Event:
    kind = raw[b"k"].decode()
    match kind:
        case "started":
            return Started(int(raw[b"a"]), raw[b"m"].decode())
        case "delta":
            ids = raw[b"i"]
            return Delta(raw[b"t"].decode(), int(raw[b"o"]), tuple(map(int, ids.split(b","))) if ids else ())
        case "reset":
            return Reset(int(raw[b"o"]))
        case _:
            return Ended(kind, json.loads(raw[b"d"]))


async def read_after(redis: Redis, run_id: UUID, after: EntryId | None, count: int = PAGE_ENTRIES) -> list[Entry]:
    """Entries of a run behind `after`, oldest first, at most `count`. Empty too when the stream is gone."""
    start = f"({after}" if after else "-"
    rows = cast(list[tuple[bytes, dict[bytes, bytes]]], await redis.xrange(run_key(run_id), min=start, count=count))
    return [entry(raw_id, raw) for raw_id, raw in rows]


async def read_rest(redis: Redis, run_id: UUID, after: EntryId | None = None) -> list[Entry]:
    """All entries of a run behind `after`, a page a round trip."""
    entries: list[Entry] = []
    while page := await read_after(redis, run_id, after, PAGE_ENTRIES):
        entries += page
        after = page[-1].id
        if len(page) < PAGE_ENTRIES:
            break
    return entries


async def newest(redis: Redis, run_id: UUID) -> EntryId | None:
    """The id of a run's last entry so far; None where there is no stream."""
    last = cast(list[tuple[bytes, object]], await redis.xrevrange(run_key(run_id), count=1))
    return EntryId.parse(last[0][0]) if last else None
