"""What a worker's meter says of the runs it carried."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from django.db.models import F

from chat.models import Chat, Run, Status
from inference.engine import EngineDead
from inference.metering import Tally
from inference.scripted_engine import Failure, Script
from tests.chat.generating import working
from tests.metering import metered

pytestmark = pytest.mark.django_db(transaction=True)

WAITED_S = 4
APPENDING = {"XADD", "EXPIRE"}
CONNECTING = {"AUTH", "CLIENT", "HELLO", "SELECT"}
TEN_TOKENS = Script(text="a" * 10, split_characters=True, tokens_per_s=1000, cached_tokens=2)


@pytest.fixture
def runs(new_run: Callable[..., Run], chat: Chat) -> list[Run]:
    """Two runs that were asked for a while ago."""
    made = [new_run(in_chat=Chat.objects.create(owner=chat.owner)) for _ in range(2)]
    Run.objects.update(created_at=F("created_at") - timedelta(seconds=WAITED_S))
    return made


@pytest.fixture
def long_run(new_run: Callable[..., Run]) -> Run:
    """Its prompt has some 500 tokens."""
    return new_run(text="word " * 500)


async def tally_of(run: Run, script: Script = TEN_TOKENS) -> tuple[Tally, Run]:
    """What is counted when a new worker carries the run, and the run's row afterwards."""
    async with working(script) as worker:
        await worker.attempts.run(run.pk)
        return worker.attempts.meter.tallies["free"], await worker.row(run)


async def test_a_run_counts_with_its_wait_its_first_token_and_those_after_it(runs: list[Run]) -> None:
    tally, row = await tally_of(runs[0])

    assert (row.status, row.output_tokens) == (Status.DONE, 10)
    assert (tally.in_hand, tally.taken, tally.ended) == (0, 1, {"done": 1})
    assert (tally.input_tokens, tally.cached_tokens, tally.output_tokens) == (row.input_tokens, 2, 10)
    assert tally.charged_tokens == row.charged_tokens
    assert (sum(tally.queue_wait.counts), sum(tally.ttft.counts), sum(tally.inter_token.counts)) == (1, 1, 9)
    assert tally.ttft.sum_s > tally.queue_wait.sum_s >= WAITED_S


async def test_tokens_of_one_step_share_the_time_it_took(runs: list[Run]) -> None:
    tally, _ = await tally_of(runs[0], replace(TEN_TOKENS, text="a" * 12, tokens_per_step=3))

    assert (tally.output_tokens, sum(tally.inter_token.counts)) == (12, 9)


async def test_another_attempt_is_no_other_wait_and_no_other_first_token(runs: list[Run]) -> None:
    half = replace(TEN_TOKENS, failure=Failure.ENGINE_DEAD, fail_after_tokens=5)
    async with working(half) as worker:
        with pytest.raises(EngineDead):
            await worker.attempts.run(runs[0].pk)
        first = worker.attempts.meter.tallies["free"]

    second, row = await tally_of(runs[0])

    assert (row.attempt, first.ended, second.ended) == (2, {}, {"done": 1})
    assert (first.output_tokens, second.output_tokens) == (5, 5)
    assert [(sum(tally.queue_wait.counts), sum(tally.ttft.counts)) for tally in (first, second)] == [(1, 1), (0, 0)]


async def test_the_first_token_of_a_run_whose_worker_died_before_it_counts_from_the_request(runs: list[Run]) -> None:
    dying = Script(failure=Failure.ENGINE_DEAD)
    async with working(dying) as worker:
        with pytest.raises(EngineDead):
            await worker.attempts.run(runs[0].pk)

    tally, _ = await tally_of(runs[0])

    assert (sum(tally.queue_wait.counts), sum(tally.ttft.counts)) == (0, 1)
    assert tally.ttft.sum_s >= WAITED_S


async def test_a_token_asks_nothing_of_redis_but_its_append(runs: list[Run], monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for run, tokens in zip(runs, (10, 60), strict=True):
        async with working(replace(TEN_TOKENS, text="a" * tokens)) as worker:
            with metered(monkeypatch) as costs:
                await worker.attempts.run(run.pk)
                await worker.attempts._announcements.finish()
        found.append([name for name in costs.commands if name not in APPENDING | CONNECTING])

    few, many = found
    assert len(many) < len(few) + 5, "what it asks beside, at its claim and its end, may be one wish or two"


@pytest.mark.parametrize(("cached", "least_us"), [(100, 200_000 / 600), (400, 0)])
async def test_what_a_prompts_tokens_take_is_measured_where_many_were_computed(
    long_run: Run, cached: int, least_us: float
) -> None:
    async with working(replace(TEN_TOKENS, first_token_ms=200, cached_tokens=cached)) as worker:
        await worker.attempts.run(long_run.pk)
        measured_us = worker.attempts._gauge.report().prefill_us

    assert measured_us >= least_us
    assert bool(measured_us) == bool(least_us)
