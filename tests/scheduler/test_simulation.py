"""The scheduler in simulated time, at a small size: what bench/simulation says at a large one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from django.conf import settings
from redis import Redis

from bench.simulation import between, within
from bench.simulation.cell import Setting
from bench.simulation.figures import filled, shares
from bench.simulation.runs import Run
from bench.simulation.scale import Size, simulated
from scheduler.routing import Warm
from tests.stack.stack import other_db

FURTHER = 8  # a database that nobody else uses, since a simulation empties its own


@pytest.fixture
def url() -> Iterator[str]:
    url = other_db(settings.STREAMS_URL, FURTHER)
    yield url
    with Redis.from_url(url) as redis:
        redis.flushdb()


def test_users_of_a_tier_stay_as_near_as_promised_where_first_come_first_served_lets_them_drift(url: str) -> None:
    trial = within.Trial(seconds=200, sample_s=1, crowd=replace(within.CROWD, prompts_per_s=60))

    fair, plain = (within.outcome(trial, within.ORDERS[name], url) for name in (within.ROOM, within.FIRST_COME))

    assert fair.gap_tokens <= fair.bound_tokens
    assert plain.gap_tokens > 2 * fair.gap_tokens
    assert fair.output_tokens_per_s == pytest.approx(plain.output_tokens_per_s, rel=0.02)


def test_saturated_tiers_have_their_weights_shares(url: str) -> None:
    site = between.Scene(seconds=100).play(url)

    tokens = Counter[str]()
    for run in between.ended(site):
        tokens[run.tier] += run.charge
    assert shares(tokens) == pytest.approx({"pro": 8 / 12, "plus": 3 / 12, "free": 1 / 12}, rel=0.1)


@pytest.mark.parametrize("warm", [between.warm_by_turns, between.warm_at_one])
def test_tiers_have_their_shares_though_all_prefer_a_worker(url: str, warm: Callable[[Run], Warm]) -> None:
    runs = between.ended(between.Scene(seconds=100, setting=replace(between.SETTING, warm=warm)).play(url))

    tokens = Counter[str]()
    for run in runs:
        tokens[run.tier] += run.charge
    assert shares(tokens) == pytest.approx({"pro": 8 / 12, "plus": 3 / 12, "free": 1 / 12}, rel=0.1)
    assert {run.worker for run in runs} == {"0", "1"}, "who is warm at one spills over"
    assert sum(run.is_hit for run in runs) / len(runs) > 0.52, "more than by chance"


def test_users_of_a_tier_stay_as_near_as_promised_though_all_prefer_a_worker(url: str) -> None:
    trial = within.Trial(seconds=200, sample_s=1, crowd=replace(within.CROWD, prompts_per_s=60))

    def own_worker(run: Run) -> Warm:
        return Warm(str(run.prompt.person.id.int % trial.setting.workers), between.HISTORY)

    prefers = replace(trial, setting=replace(trial.setting, warm=own_worker))
    found = within.outcome(prefers, within.ORDERS[within.ROOM], url)

    assert found.gap_tokens <= found.bound_tokens


def test_the_lower_tiers_are_refused_first_and_have_their_shares(url: str) -> None:
    """Each alone would fill the queue, of which Free keeps a single place."""
    alike = dict.fromkeys(("free", "plus", "pro"), 1 / 3)
    size = Size(15, users=600, cells=1, waiting=60, seconds=240, warm_s=40, shares=alike, setting=Setting(2, slots=8))

    tally = simulated(size, url)

    refused = {tier: tally.refused[tier, "queue"] / tally.asked[tier] for tier in alike}
    assert refused["free"] > refused["plus"] > refused["pro"]
    assert shares(tally.served) == pytest.approx({"pro": 8 / 12, "plus": 3 / 12, "free": 1 / 12}, rel=0.2)


def test_what_a_tier_does_not_want_goes_to_the_others_by_weight() -> None:
    weights = {"free": 1, "plus": 3, "pro": 8}

    assert filled({"free": 90.0, "plus": 90.0, "pro": 20.0}, weights, 120.0) == {
        "pro": 20.0,
        "free": 25.0,
        "plus": 75.0,
    }
    assert filled({"free": 10.0, "plus": 90.0, "pro": 20.0}, weights, 120.0) == {
        "free": 10.0,
        "pro": 20.0,
        "plus": 90.0,
    }
