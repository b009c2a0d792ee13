"""Queues that come to be while a worker runs: it pulls from them too, through whatever happens to its broker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence

import pytest
from redis import Redis

from inference import queues
from inference.host import NotServed
from inference.queues import COST, FairCycle, QueueNames, sticky_name, tier_queue
from scheduler.fairness import FairOrder
from tests.inference.pool_host import TOLD
from tests.inference.pool_worker import StartWorker, send
from tests.inference.worker_process import Queue, wait_until


@pytest.fixture
def later(queue: Queue, streams: Redis) -> Iterator[Queue]:
    """A queue that the model's host does not name yet."""
    later = queue.named(f"{queue.name}-later")
    yield later
    later.delete()
    streams.delete(_names_of(queue))


def _names_of(queue: Queue) -> str:
    return f"{TOLD}:queues:{queue.name}"


def test_a_worker_pulls_from_a_queue_that_is_named_later(
    start_worker: StartWorker, queue: Queue, later: Queue, streams: Redis
) -> None:
    worker = start_worker()
    send(later, jobs=3, tokens=2)
    streams.hset(_names_of(queue), later.name, 1)

    wait_until(lambda: worker.count("done") == 3, "the new queue's tasks are done")
    wait_until(lambda: later.unacknowledged == 0, "all are acknowledged")
    send(queue, jobs=1, tokens=2)
    wait_until(lambda: worker.count("done") == 4, "the first queue's task is done")


def test_a_queue_that_was_added_survives_reconnects(
    start_worker: StartWorker, queue: Queue, later: Queue, streams: Redis, broker: Redis
) -> None:
    worker = start_worker()
    streams.hset(_names_of(queue), later.name, 1)
    wait_until(lambda: "queues.pulls" in worker.log, "the new queue is pulled from")

    for round_number in (1, 2):
        worker.drop_broker_connections(broker)
        send(later, jobs=1, tokens=2)
        wait_until(lambda: worker.count("done") == round_number, "its task is done")  # noqa: B023 - called at once

    assert worker.log.count(f"queues.pulls queue={later.name}\n") == 1


def test_a_queue_that_is_named_while_the_broker_reconnects_is_pulled_from(
    start_worker: StartWorker, queue: Queue, later: Queue, streams: Redis, broker: Redis
) -> None:
    worker = start_worker()
    worker.drop_broker_connections(broker)
    streams.hset(_names_of(queue), later.name, 1)
    worker.drop_broker_connections(broker)
    send(later, jobs=1, tokens=2)

    wait_until(lambda: worker.count("done") == 1, "its task is done")


def test_a_worker_takes_from_each_queue_its_share_of_the_tokens(
    start_worker: StartWorker, queue: Queue, later: Queue, streams: Redis
) -> None:
    streams.hset(_names_of(queue), later.name, 3)
    for number in range(40):
        # One in two as an earlier release sends them.
        cost = {COST: 20} if number % 2 else {}
        queue.send("pool-test.generate", "short", 2, "Hi", **cost)
        later.send("pool-test.generate", "long", 4, "Hi", **cost)
    worker = start_worker(SCRIPT_SLOTS="1", SCRIPT_TOKENS_PER_S="500")

    wait_until(lambda: worker.count("done") >= 50, "most are done")

    # Three times the tokens are three long ones to two short ones.
    done = [what for what in worker.told() if what.startswith("done")][:50]
    assert done.count("done long") == pytest.approx(30, abs=1)


def test_kombu_asks_for_all_queues_in_order_and_for_those_without_a_share_last() -> None:
    order = FairOrder()
    order.weigh({"free": 1, "pro": 8})
    cycle = FairCycle(order)
    cycle.update({"pro", "free", "gone"})
    order.start("free", 10)

    assert cycle.consume(3) == ["pro", "free", "gone"]


def test_of_each_tier_a_worker_looks_at_its_sticky_queue_first() -> None:
    order = FairOrder()
    order.weigh({"free": 1, "pro": 8})
    cycle = FairCycle(order)
    cycle.update({"pro", "free", "pro@gpu@host", "free@gpu@host", "gone@gpu@host", "gone"})
    order.start("free", 10)

    assert cycle.consume(6) == ["pro@gpu@host", "pro", "free@gpu@host", "free", "gone@gpu@host", "gone"]


def test_a_sticky_queues_name_tells_its_tiers() -> None:
    assert [tier_queue(name) for name in ("gen.m.pro", sticky_name("gen.m.pro", "gpu@host"))] == ["gen.m.pro"] * 2


def test_a_worker_takes_what_is_for_it_first_and_each_tiers_share(
    start_worker: StartWorker, queue: Queue, later: Queue, streams: Redis
) -> None:
    streams.hset(_names_of(queue), later.name, 3)
    worker = start_worker(SCRIPT_SLOTS="1", SCRIPT_TOKENS_PER_S="100")
    own = {each: each.named(sticky_name(each.name, worker.name)) for each in (queue, later)}
    # For as long as it takes to put all messages there.
    send(queue, jobs=1, tokens=30, script='[[script {"first_token_ms": 4000}]]')
    wait_until(lambda: worker.count("begun") == 1, "the only slot is taken")
    for each, tokens in ((queue, 2), (later, 4)):
        for where in (each, own[each]):
            for _ in range(30):
                where.send("pool-test.generate", where.name, tokens, "Hi", **{COST: 20})

    wait_until(lambda: worker.count("done") >= 51, "most are done")

    done = [what.split()[1] for what in worker.told() if what.startswith("done")][1:51]
    of_tier = {each: [name for name in done if tier_queue(name) == each.name] for each in (queue, later)}
    for names in of_tier.values():
        assert names == sorted(names, key=lambda name: "@" not in name)
    assert 4 * len(of_tier[later]) == pytest.approx(3 * (30 + 2 * len(of_tier[queue])), abs=12)
    for each in own.values():
        each.delete()


async def test_names_stay_while_the_host_does_not_know(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(queues, "READ_S", 0.001)
    caplog.set_level(logging.WARNING)
    answers: Iterator[Mapping[str, int] | Exception] = iter(
        [*[NotServed("away")] * 5, {"a": 1, "b": 2}, RuntimeError("bug")]
    )
    met: list[Sequence[str]] = []
    all_read = asyncio.Event()
    loop = asyncio.get_running_loop()

    def read() -> Mapping[str, int]:
        met.append(names.now)
        answer = next(answers, None)
        if answer is None:
            loop.call_soon_threadsafe(all_read.set)
            return {"c": 1}
        if isinstance(answer, Exception):
            raise answer
        return answer

    order = FairOrder()
    names = QueueNames("w", {"a": 1}, read, order)
    async with names.following():
        await all_read.wait()

    assert met[:8] == [("a@w", "a")] * 6 + [("a@w", "a", "b@w", "b")] * 2
    assert order.ranked() in (["a", "b"], ["c"])
    assert caplog.text.count("reason=away") == 1
