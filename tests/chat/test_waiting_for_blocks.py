"""Runs that the KV cache has no room for wait outside the engine, and can be stopped there as anywhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

import pytest

from chat import cancelling
from chat.attempt import Attempt
from chat.draft import Draft
from chat.generation import claim_run, continued
from chat.models import Chat, Run, Status, User
from inference.engine import EngineDead, Step
from inference.gate import Gate, Visit
from inference.host import HandedBack
from inference.scripted_engine import Script
from inference.tokens import Tokenizer
from tests.chat.generating import A_MINUTE, Worker, endings_of, working
from tests.real_model import model_folder

pytestmark = pytest.mark.django_db(transaction=True)

CAP, BLOCKS = 1000, 150
# A prompt of some 40 tokens and the cap take 65 blocks or more: two runs fit, a third does not. A run takes 10 s.
SMALL = Script(text="Long. " * 5000, tokens_per_s=100, context_window=2048, kv_blocks=BLOCKS, block_tokens=16)
QUICK = replace(SMALL, tokens_per_step=50)
A_BLINK = timedelta(seconds=0.3)
SOON_S = 5


@pytest.fixture
def runs(new_run: Callable[..., Run], alice: User) -> Sequence[Run]:
    made = [new_run(in_chat=Chat.objects.create(owner=alice)) for _ in range(4)]
    Run.objects.update(max_output_tokens=CAP)
    return made


@asynccontextmanager
async def under_way(worker: Worker, runs: Sequence[Run]) -> AsyncIterator[list[asyncio.Task[int]]]:
    """They come to the gate one after the other: the first two go in."""
    tasks: list[asyncio.Task[int]] = []
    try:
        for run in runs:
            tasks.append(await come(worker, run, after=len(tasks)))
        yield tasks
    finally:
        await worker.attempts.hand_back()
        await asyncio.gather(*tasks, return_exceptions=True)


async def come(worker: Worker, run: Run, after: int) -> asyncio.Task[int]:
    """Its task, once it is in the engine or waits; so many came before it."""
    task = asyncio.create_task(worker.attempts.run(run.pk))
    await until(worker, running=min(after + 1, 2), waiting=max(after - 1, 0))
    return task


async def until(worker: Worker, running: int, waiting: int) -> None:
    """Return once so many are in the engine, and so many at its gate."""

    async def come() -> bool:
        report = worker.attempts.report()
        return (report["running"], report["kv_waiting"]) == (running, waiting)

    await worker.until(come)


async def statuses(worker: Worker, runs: Sequence[Run]) -> list[str]:
    return [(await worker.row(run)).status for run in runs]


async def test_a_burst_of_long_runs_preempts_nobody_and_all_of_them_end(runs: Sequence[Run]) -> None:
    async with working(QUICK) as worker:
        async with asyncio.timeout(SOON_S):
            await asyncio.gather(*(worker.attempts.run(run.pk) for run in runs))
        report = worker.attempts.report()

        assert await statuses(worker, runs) == [Status.DONE] * 4
    assert (report["preemptions"], report["peak_running"], report["kv_waits"]) == (0, 2, 2)
    assert report["kv_blocks_free"] == report["kv_blocks"] == BLOCKS


async def test_a_worker_takes_one_more_until_one_waits(runs: Sequence[Run]) -> None:
    async with working(SMALL) as worker, under_way(worker, ()) as tasks:
        limits = [worker.attempts.limit()]
        for run in runs[:3]:
            tasks.append(await come(worker, run, after=len(tasks)))
            limits.append(worker.attempts.limit())
    assert limits == [1, 2, 3, 3]


async def test_one_that_is_cancelled_while_it_waits_ends_at_once_and_the_others_stay(runs: Sequence[Run]) -> None:
    async with working(SMALL) as worker, under_way(worker, runs) as tasks:
        await worker.ask_rows(lambda: cancelling.cancel(runs[2]))
        async with asyncio.timeout(SOON_S):
            await tasks[2]

        assert await statuses(worker, runs) == ["streaming", "streaming", "cancelled", "streaming"]
        assert len(endings_of(await worker.entries(runs[2]))) == 1
        await until(worker, running=2, waiting=1)


async def test_those_that_wait_are_handed_back_at_once(runs: Sequence[Run]) -> None:
    async with working(SMALL) as worker, under_way(worker, runs) as tasks:
        async with asyncio.timeout(SOON_S):
            await worker.attempts.hand_back()
            ends = await asyncio.gather(*tasks, return_exceptions=True)

        assert [type(end) for end in ends] == [HandedBack] * 4
        rows = [await worker.row(run) for run in runs]
        assert [(row.status, row.hand_backs) for row in rows] == [(Status.STREAMING, 1)] * 4
        assert worker.engine.load().requests == 0
        assert worker.engine.load().peak_running == 2


async def test_one_that_waits_and_is_another_workers_by_now_leaves(runs: Sequence[Run]) -> None:
    async with working(SMALL, lease=A_BLINK) as worker, under_way(worker, runs[:3]) as tasks:
        await worker.ask_rows(lambda: taken_away(runs[2]))
        async with asyncio.timeout(SOON_S):
            await tasks[2]

        assert (await worker.row(runs[2])).attempt == 2
        await until(worker, running=2, waiting=0)


async def test_nobody_goes_on_waiting_for_an_engine_that_died(runs: Sequence[Run]) -> None:
    async with working(SMALL) as worker, under_way(worker, runs) as tasks:
        worker.engine.kill()
        async with asyncio.timeout(SOON_S):
            ends = await asyncio.gather(*tasks, return_exceptions=True)

        assert [type(end) for end in ends] == [EngineDead] * 4


def taken_away(run: Run) -> None:
    """Another worker has it."""
    Run.objects.filter(pk=run.pk).update(lease_until="2000-01-01T00:00Z", attempt=2)


async def test_a_lease_is_renewed_while_its_run_waits(runs: Sequence[Run]) -> None:
    async with working(SMALL, lease=A_BLINK) as worker, under_way(worker, runs[:3]) as tasks:
        await asyncio.sleep(3 * A_BLINK.total_seconds())

        assert not tasks[2].done()
        assert await worker.ask_rows(lambda: Run.objects.filter(pk=runs[2].pk, attempt=1).count()) == 1


@pytest.mark.parametrize("written", [0, 1, 400, CAP - 1])
async def test_an_attempt_that_goes_on_takes_as_much_as_the_first(runs: Sequence[Run], written: int) -> None:
    draft = Draft(Tokenizer.load(model_folder()))
    draft.add(Step([7] * written))
    async with working(SMALL) as worker:
        run, claim = await worker.ask_rows(lambda: claim_run(runs[0].pk, "gpu", A_MINUTE))
        visit = Visit(Gate(worker.engine, lambda: None))
    generation = continued(Attempt(run, claim, draft, visit), [5] * 40)

    assert generation is not None
    assert generation.most_tokens == 40 + CAP
