"""What a worker asks for beside its runs, and what it tells by the way."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from uuid import UUID

import pytest
from redis import Redis
from uuid6 import uuid7

from chat import queueing
from chat.models import Run
from chat.releases import Releases
from inference.scripted_engine import Script
from scheduler.fairness import FairOrder
from scheduler.room import Correction, Release, drain_key, queue_name
from scheduler.routing import Report
from tests.chat.generating import working
from tests.streaming.telling import until


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, int]]:
    """What was asked of the broker: model, tier and how many have left."""
    calls: list[tuple[str, str, int]] = []

    def release(
        model: str, tier: str, departed: Sequence[UUID], _corrections: Iterable[Correction], _report: Report | None
    ) -> Release:
        calls.append((model, tier, len(departed)))
        return Release([], {"free": 2, "plus": 0})

    monkeypatch.setattr(queueing, "release", release)
    return calls


@pytest.fixture
def run(new_run: Callable[..., Run]) -> Run:
    return new_run()


class RestNoted(FairOrder):
    """Notes who rests."""

    def __init__(self) -> None:
        super().__init__()
        self.rested: set[str] = set()

    def rest(self, names: Iterable[str]) -> None:
        """As it is."""
        self.rested.update(names)


def claimed(tier: str = "free", attempt: int = 1) -> Run:
    return Run(pk=uuid7(), model_id="m", tier_id=tier, attempt=attempt)


def departed(told: list[tuple[str, str, int]]) -> Counter[tuple[str, str]]:
    """How many have left, by model and tier."""
    counted = Counter[tuple[str, str]]()
    for model, tier, count in told:
        counted[model, tier] += count
    return counted


async def test_each_claim_is_told_once_and_no_end(told: list[tuple[str, str, int]]) -> None:
    runs = [claimed(), claimed(), claimed("pro")]
    releases = Releases(FairOrder())
    async with releases.releasing():
        for run in runs:
            releases.claimed(run)
        await until(lambda: departed(told).total() == 3)
        for run in runs:
            releases.ended(run)
        await until(lambda: len(told) == 4)

    assert departed(told) == {("m", "free"): 2, ("m", "pro"): 1}
    assert sorted(told) == [("m", "free", 0), ("m", "free", 2), ("m", "pro", 0), ("m", "pro", 1)]


async def test_a_run_that_is_claimed_again_has_left_again(told: list[tuple[str, str, int]]) -> None:
    first = claimed()
    again = Run(pk=first.pk, model_id="m", tier_id="free", attempt=2)
    releases = Releases(FairOrder())
    async with releases.releasing():
        for run in (first, again):
            releases.claimed(run)
        await until(lambda: told)

    assert told == [("m", "free", 2)]


async def test_a_busy_tier_does_not_keep_another_from_being_told(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, releases, tiers = asyncio.get_running_loop(), Releases(FairOrder()), list[str]()

    def release(_model: str, tier: str, *_told: object) -> Release:
        tiers.append(tier)
        if len(tiers) < 20:
            loop.call_soon_threadsafe(releases.claimed, claimed("pro"))
        return Release([])

    monkeypatch.setattr(queueing, "release", release)
    releases.claimed(claimed("free"))
    releases.claimed(claimed("pro"))
    async with releases.releasing():
        await until(lambda: "free" in tiers)

    assert tiers.index("free") < 2


async def test_the_order_hears_in_which_queues_nothing_waits(told: list[tuple[str, str, int]]) -> None:
    order = RestNoted()
    order.weigh({queue_name("m", tier): 1 for tier in ("free", "plus", "pro")})
    releases = Releases(order)
    async with releases.releasing():
        releases.claimed(claimed())
        await until(lambda: order.rested)

    assert order.rested == {queue_name("m", "plus"), queue_name("m", "pro")}


@pytest.mark.django_db(transaction=True)
async def test_a_worker_that_ends_a_run_tells_and_returns_what_it_came_to(run: Run, broker: Redis) -> None:
    async with working(Script(text="Hi")) as worker:
        charge = await worker.attempts.run(run.pk)
        row = await worker.row(run)
        await until(lambda: broker.hexists(drain_key(run.model_id), f"charge:{run.tier_id}"))

    assert 0 < charge == row.charged_tokens < row.cost
    assert float(broker.hget(drain_key(run.model_id), f"charge:{run.tier_id}") or 0) == charge


@pytest.mark.django_db(transaction=True)
async def test_a_worker_that_takes_a_run_tells_the_broker(run: Run, broker: Redis) -> None:
    async with working(Script(text="Hi")) as worker:
        await worker.attempts.run(run.pk)
        await until(lambda: broker.hget(drain_key(run.model_id), "leaving") == b"1.000")
