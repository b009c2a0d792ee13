"""What workers report of themselves to the streams' Redis, every few seconds: its key, its shape, how old it is."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Final, Self, cast

from redis import Redis

from inference.metering import BOUNDS_S

KEY: Final = "workers"
WRITE: Final = (Path(__file__).parent / "lua" / "report.lua").read_text()
# With the clock of the server that keeps them: in a cluster another's may differ.
READ: Final = "return {redis.call('HGETALL', KEYS[1]), redis.call('TIME')}"
REPORT_S: Final = 2.0
# Older than that, a report says nothing of now: its worker is dead, stuck, or cut off from Redis.
FRESH_S: Final = 10.0
# So long people are told of a worker that has gone silent.
REMEMBERED_S: Final = 600


@dataclass(frozen=True, slots=True)
class Measured:
    """A histogram's counts by bucket, of which `inference.metering.BOUNDS_S` has the bounds, and its sum."""

    counts: Sequence[int] = ()
    sum_s: float = 0.0


@dataclass(frozen=True, slots=True)
class TierReport:
    """A worker's runs of one tier: see `inference.metering.Tally`. Rates are those of the last minute."""

    in_hand: int = 0
    taken: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    charged_tokens: int = 0
    miscounted: int = 0
    ended: Mapping[str, int] = field(default_factory=dict)
    taken_per_s: float = 0.0
    charged_per_s: float = 0.0
    ttft: Measured = Measured()
    queue_wait: Measured = Measured()
    inter_token: Measured = Measured()


@dataclass(frozen=True, slots=True)
class Report:
    """A worker as it is: `engine` is what its runner says, `tiers` by slug.

    Tokens a second are those of the last ten seconds; the prefix hit rate, of the input tokens that were looked up, is
    that of the last minute, and None when none were.
    """

    model: str = ""
    up_s: float = 0.0
    input_tokens_per_s: float = 0.0
    output_tokens_per_s: float = 0.0
    prefix_hit_rate: float | None = None
    engine: Mapping[str, float] = field(default_factory=dict)
    tiers: Mapping[str, TierReport] = field(default_factory=dict)

    def encoded(self) -> str:
        """As Redis keeps it."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def decoded(cls, text: str | bytes) -> Self:
        """The reverse. What a worker of another release left out has its default, what it added is ignored."""
        raw = json.loads(text)
        tiers = {slug: _tier(part) for slug, part in raw.get("tiers", {}).items()}
        return cls(**{**_known(cls, raw), "tiers": tiers})


@dataclass(frozen=True, slots=True)
class Seen:
    """A worker's last report, and its age by the clock of the Redis that keeps it."""

    worker: str
    age_s: float
    report: Report

    @property
    def is_fresh(self) -> bool:
        """Whether it says something of now."""
        return self.age_s <= FRESH_S


def read(redis: Redis) -> list[Seen]:
    """Every worker's last report, by name, of the last ten minutes. One round trip."""
    return [seen for seen in _stored(redis) if seen.age_s <= REMEMBERED_S]


def forget_silent(redis: Redis) -> None:
    """Drop the reports that `read` leaves out."""
    if silent := [seen.worker for seen in _stored(redis) if seen.age_s > REMEMBERED_S]:
        redis.hdel(KEY, *silent)


def _stored(redis: Redis) -> list[Seen]:
    pairs, clock = cast(tuple[list[bytes], tuple[int, int]], redis.eval(READ, 1, KEY))
    now_ms = int(clock[0]) * 1000 + int(clock[1]) // 1000
    stored = zip(pairs[::2], pairs[1::2], strict=True)
    return [_seen(name.decode(), value, now_ms) for name, value in sorted(stored)]


def _seen(worker: str, value: bytes, now_ms: int) -> Seen:
    at_ms, _, report = value.partition(b" ")
    return Seen(worker, max(0, now_ms - int(at_ms)) / 1000, Report.decoded(report))


def _tier(raw: Mapping[str, Any]) -> TierReport:
    known = _known(TierReport, raw)
    measured = {name: Measured(**_known(Measured, known[name])) for name in BOUNDS_S if name in known}
    return TierReport(**(known | measured))


def _known(cls: type[Report | TierReport | Measured], raw: Mapping[str, Any]) -> dict[str, Any]:
    names = {entry.name for entry in fields(cls)}
    return {name: value for name, value in raw.items() if name in names}
