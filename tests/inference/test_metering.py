"""What a worker counts of itself, and what comes of it at the other end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from django.conf import settings
from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from inference import reports
from inference.host import Runner
from inference.metering import Histogram, Meter
from inference.reporting import NOW_S, RECENT_S, Reporter, Reporting, Window
from inference.reports import Report, TierReport
from tests.metering import metered

WORKER = "gpu@metering"


@dataclass
class Idle:
    """A runner with nothing to do."""

    meter: Meter = field(default_factory=Meter)
    engine: dict[str, float] = field(default_factory=lambda: {"slots": 4})

    def report(self) -> Mapping[str, float]:
        return self.engine


@pytest.fixture
def reported(streams: Redis) -> Iterator[Redis]:
    yield streams
    streams.delete(reports.KEY)


@pytest.fixture
async def redis() -> AsyncIterator[AsyncRedis]:
    async with AsyncRedis.from_url(settings.STREAMS_URL) as client:
        yield client


def reporter_of(runner: Idle, redis: AsyncRedis, report_s: float = 0.01) -> Reporter:
    return Reporter(redis, Reporting(WORKER, "a-model", cast(Runner, runner)), report_s)


async def seen(streams: Redis) -> reports.Seen:
    async with asyncio.timeout(20):
        while not (found := [one for one in reports.read(streams) if one.worker == WORKER]):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return found[0]


def test_an_observation_falls_into_the_first_bucket_that_holds_it() -> None:
    histogram = Histogram((0.1, 1))

    histogram.observe(0.1)
    histogram.observe(0.5, times=3)
    histogram.observe(7)

    assert histogram.counts == [1, 3, 1]
    assert histogram.sum_s == pytest.approx(8.6)


def test_a_rate_is_that_of_its_time_and_not_of_all_time() -> None:
    window = Window()
    for second in range(0, 200, 2):
        window.add(second, {"tokens": 100.0 * min(second, 180)})  # and then it stands still

    assert window.rate("tokens", NOW_S) == 0
    assert window.rate("tokens", RECENT_S) == pytest.approx(100 * 42 / 60)
    assert window.grown("tokens", RECENT_S) == 4200
    assert len(window._kept) <= RECENT_S / 2 + 1


def test_a_total_that_is_new_grew_from_nothing_and_one_moment_has_no_rate() -> None:
    window = Window()
    window.add(0, {})
    assert window.rate("tokens", NOW_S) == 0

    window.add(2, {"tokens": 10})

    assert window.rate("tokens", NOW_S) == 5


def test_what_another_release_reports_is_read_as_far_as_it_is_known() -> None:
    whole = Report(model="m", engine={"slots": 4}, tiers={"pro": TierReport(in_hand=2, ended={"done": 1})})
    assert Report.decoded(whole.encoded()).tiers["pro"].ended == {"done": 1}
    assert json.loads(Report.decoded(whole.encoded()).encoded()) == json.loads(whole.encoded())

    other: dict[str, Any] = {
        "model": "m",
        "news": 1,
        "tiers": {"pro": {"in_hand": 2, "news": {}, "ttft": {"most_s": 1}}},
    }

    assert Report.decoded(json.dumps(other)) == Report(model="m", tiers={"pro": TierReport(in_hand=2)})


async def test_a_worker_reports_until_it_stops(reported: Redis, redis: AsyncRedis) -> None:
    runner = Idle()
    runner.meter.tallies["pro"].in_hand = 2

    async with reporter_of(runner, redis):
        told = await seen(reported)
        assert (told.report.model, told.report.engine, told.report.tiers["pro"].in_hand) == ("a-model", {"slots": 4}, 2)
        assert told.is_fresh

    assert reports.read(reported) == []


async def test_a_report_ages_by_the_clock_of_its_redis_and_is_forgotten(reported: Redis) -> None:
    def tell(worker: str, age_s: float) -> None:
        now_s, _ = reported.time()
        reported.hset(reports.KEY, worker, f"{int((now_s - age_s) * 1000)} {Report(model='m').encoded()}")

    tell("alive", 1)
    tell("silent", reports.FRESH_S + 5)
    tell("gone", reports.REMEMBERED_S + 5)

    alive, silent = reports.read(reported)

    assert (alive.worker, alive.is_fresh) == ("alive", True)
    assert (silent.worker, silent.is_fresh) == ("silent", False)
    assert silent.age_s == pytest.approx(reports.FRESH_S + 5, abs=2)
    reports.forget_silent(reported)
    assert set(cast(dict[bytes, bytes], reported.hgetall(reports.KEY))) == {b"alive", b"silent"}


async def test_one_report_is_one_round_trip_however_much_was_counted(
    reported: Redis, redis: AsyncRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = Idle()
    reporter = reporter_of(runner, redis)
    await reporter._tell(reporter.report())  # loads the script
    for tier in ("free", "plus", "pro"):
        runner.meter.tallies[tier].inter_token.observe(0.01, times=10_000)

    with metered(monkeypatch) as costs:
        await reporter._tell(reporter.report())

    assert (costs.commands, costs.round_trips) == (["EVALSHA"], 1)


async def test_a_worker_goes_on_while_the_streams_are_away(silent_redis: str, caplog: pytest.LogCaptureFixture) -> None:
    async with (
        AsyncRedis.from_url(silent_redis, socket_timeout=0.01, socket_connect_timeout=0.01) as away,
        reporter_of(Idle(), away) as reporter,
        asyncio.timeout(20),
    ):
        while reporter._is_known:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)

    assert [record.message for record in caplog.records if "reports.away" in record.message] == [
        "reports.away error=TimeoutError"
    ]
