"""The last hour of the load, a sample each ten seconds, in the streams' Redis."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from django.conf import settings
from redis import Redis

from chat.load.picture import ModelLoad, Picture, draw
from inference import reports
from scheduler.dispensable import shared

KEY = "load:samples"
# With the clock of the server that keeps them: in a cluster another's may differ.
READ = "return {redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', ARGV[1]), redis.call('TIME')}"
SAMPLE_S = 10.0
HOUR_S = 3600
SAMPLES = int(HOUR_S / SAMPLE_S)


@dataclass(frozen=True, slots=True)
class Sample:
    """The load some time ago, by the clock of the Redis that keeps it; `models` by slug, as `_sampled` has them."""

    age_s: float
    models: Mapping[str, Any]


class Sampler:
    """Takes a sample whenever ten seconds have passed since its last one. While Redis is away there is none."""

    def __init__(self) -> None:
        self._due_at = 0.0

    def sample_when_due(self) -> None:
        """Call it often."""
        if time.monotonic() >= self._due_at:
            self._due_at = time.monotonic() + SAMPLE_S
            sample()


def sample() -> None:
    """Keep the load as it is now, and forget workers that have been silent for long."""
    picture = draw()
    if picture.knows_workers:
        redis = shared(settings.STREAMS_URL)
        redis.ask(lambda: _keep(redis.client, picture), otherwise=None)


def last_hour() -> Sequence[Sample]:
    """Samples, oldest first; none while Redis is away. One round trip."""
    redis = shared(settings.STREAMS_URL)
    return redis.ask(lambda: _read(redis.client), otherwise=())


def _keep(redis: Redis, picture: Picture) -> None:
    text = json.dumps({load.model.pk: _sampled(load) for load in picture.models}, separators=(",", ":"))
    with redis.pipeline(transaction=False) as pipe:
        pipe.xadd(KEY, {"m": text}, maxlen=SAMPLES, approximate=False)
        pipe.expire(KEY, HOUR_S)
        pipe.execute()
    reports.forget_silent(redis)


def _sampled(load: ModelLoad) -> dict[str, Any]:
    tiers = {
        each.tier.pk: {"waiting": each.waiting.runs, "in_hand": each.in_hand, "oldest_s": round(each.waiting.oldest_s)}
        for each in load.tiers
    }
    usage = load.kv_cache_usage
    return {
        "tiers": tiers,
        "input": round(load.input_tokens_per_s, 1),
        "output": round(load.output_tokens_per_s, 1),
        **({} if usage is None else {"kv": round(usage, 3)}),
    }


def _read(redis: Redis) -> list[Sample]:
    entries, clock = cast(
        tuple[list[tuple[bytes, tuple[bytes, bytes]]], tuple[int, int]], redis.eval(READ, 1, KEY, str(SAMPLES))
    )
    now_ms = int(clock[0]) * 1000 + int(clock[1]) // 1000
    samples = (Sample((now_ms - int(entry.split(b"-")[0])) / 1000, json.loads(text)) for entry, (_, text) in entries)
    return [one for one in samples if one.age_s <= HOUR_S][::-1]
