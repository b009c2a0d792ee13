"""To whom a run goes that its room lets go, how long it waits there, and who has it when that was too long."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import cast
from uuid import UUID, uuid4

import pytest
from redis import Redis
from uuid6 import uuid7

from inference.queues import sticky_name
from scheduler.room import Newcomer, Release, Room, holders_key, queue_name, sticky_key, workers_key
from scheduler.routing import Decision, Report, Route, Warm
from scheduler.workers import Workers

GPU, OTHER = "gpu@one", "gpu@two"
# A prefix that takes half a second.
TOKENS, PREFILL_US = 1000, 500.0
LOOKAHEAD = 8


class Site:
    """A model's rooms and workers, by the test's clock; messages are put and taken as kombu does."""

    def __init__(self, redis: Redis, model: str) -> None:
        self.redis, self.model = redis, model
        self.now_ms = 1_700_000_000_000
        self.workers = Workers(redis, model, clock=lambda: self.now_ms)

    def room(self, tier: str = "free") -> Room:
        return Room(self.redis, self.model, tier, clock=lambda: self.now_ms)

    def tell(self, worker: str = GPU, free: int = 0, interval_ms: float = 200, prefill_us: float = PREFILL_US) -> None:
        """A worker tells: unless told otherwise that it is full."""
        self.workers.tell(Report(worker, free, interval_ms, prefill_us))

    def ask(self, *runs: Newcomer, tier: str = "free", lookahead: int = LOOKAHEAD) -> Release:
        """Let runs come, and send who goes."""
        return self.sent(self.room(tier).release(lookahead, runs), tier)

    def sent(self, release: Release, tier: str = "free") -> Release:
        for departure in release.taken:
            is_kept = departure.route and departure.route.is_sticky
            self.put(departure.run_id, tier, departure.route.worker if departure.route and is_kept else None)
        return release

    def put(self, run_id: UUID, tier: str = "free", worker: str | None = None) -> None:
        queue = queue_name(self.model, tier)
        self.redis.lpush(sticky_name(queue, worker) if worker else queue, f'{{"id": "{run_id}"}}')

    def queue(self, tier: str = "free", worker: str | None = None) -> list[UUID]:
        """Whom workers would take, the next one first."""
        queue = queue_name(self.model, tier)
        messages = cast(list[bytes], self.redis.lrange(sticky_name(queue, worker) if worker else queue, 0, -1))
        return [UUID(message.decode().split('"')[3]) for message in reversed(messages)]


@pytest.fixture
def site(redis: Redis, name: str) -> Site:
    return Site(redis, name)


def warm(worker: str = GPU, tokens: int = TOKENS) -> Newcomer:
    """A stranger's run whose prompt begins as that worker's cache has it."""
    return Newcomer(uuid7(), uuid4(), 100, warm=Warm(worker, tokens))


def routes(release: Release) -> list[Route | None]:
    return [departure.route for departure in release.taken]


def decisions(release: Release) -> list[str]:
    return [route.decision if route else "" for route in routes(release)]


@dataclass(frozen=True)
class Case:
    """What the worker told, how many runs are kept for it already, and what is decided."""

    free: int
    interval_ms: float
    prefill_us: float
    kept: int
    decision: str
    wait_ms: int | None
    saving_ms: int


CASES = {
    "a free slot": Case(1, 900, 500, 0, "warm", 0, 500),
    "full, and a slot comes free as soon as the prefix would be computed": Case(0, 500, 500, 0, "warm", 500, 500),
    "full, and a slot comes free a little later": Case(0, 501, 500, 0, "busy", 501, 500),
    "full, and another waits": Case(0, 200, 500, 1, "warm", 400, 500),
    "full, and two others wait": Case(0, 200, 500, 2, "busy", 600, 500),
    "free slots for those who wait, and for one more": Case(3, 900, 500, 2, "warm", 0, 500),
    "a free slot, for which another waits": Case(1, 501, 500, 1, "busy", 501, 500),
    "full, and nobody knows when a slot comes free": Case(0, 0, 500, 0, "busy", None, 500),
    "a free slot, and nobody knows the saving": Case(1, 0, 0, 0, "warm", 0, 0),
    "full, and nobody knows the saving": Case(0, 1, 0, 0, "busy", 1, 0),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_run_waits_for_its_worker_no_longer_than_its_prefix_is_worth(site: Site, case: Case) -> None:
    site.tell(free=99)
    site.ask(*(warm() for _ in range(case.kept)))
    site.tell(GPU, case.free, case.interval_ms, case.prefill_us)

    [route] = routes(site.ask(warm()))

    assert route == Route(Decision(case.decision), GPU, case.wait_ms, case.saving_ms)
    assert len(site.queue(worker=GPU)) == case.kept + (case.decision == "warm")
    assert len(site.queue()) == (case.decision != "warm")


def test_a_run_for_which_nobody_is_warm_is_for_all(site: Site) -> None:
    site.tell(free=1)

    assert routes(site.ask(Newcomer(uuid7(), uuid4(), 100))) == [None]


def test_a_worker_that_never_told_of_itself_is_silent(site: Site) -> None:
    assert routes(site.ask(warm())) == [Route(Decision.SILENT, GPU, None, None)]


def test_a_worker_that_has_not_told_for_ten_seconds_is_silent(site: Site) -> None:
    site.tell(free=1)
    site.now_ms += 9_999
    assert decisions(site.ask(warm())) == ["warm"]

    site.now_ms += 1

    assert decisions(site.ask(warm())) == ["silent"]


def test_a_worker_that_has_left_is_silent_at_once(site: Site) -> None:
    site.tell(free=1)
    site.workers.leave(GPU)

    assert decisions(site.ask(warm())) == ["silent"]


def test_a_worker_tells_of_itself_with_its_releases(site: Site) -> None:
    site.room().release(0, report=Report(GPU, 1, 0, 0))

    assert decisions(site.ask(warm())) == ["warm"]


def test_runs_of_one_call_count_one_after_the_other(site: Site) -> None:
    site.tell(free=1, interval_ms=501)

    assert decisions(site.ask(warm(), warm(), warm(OTHER))) == ["warm", "busy", "silent"]


def test_what_is_kept_for_a_worker_in_another_tier_counts_too(site: Site) -> None:
    site.tell(free=1, interval_ms=501)
    site.ask(warm(), tier="pro")

    assert decisions(site.ask(warm(), tier="free")) == ["busy"]


def test_who_was_claimed_waits_no_more(site: Site) -> None:
    site.tell(free=1, interval_ms=501)
    [departure] = site.ask(first := warm()).taken
    assert departure.run_id == first.run_id

    site.room().release(0, departed=[first.run_id], report=Report(GPU, 1, 501, PREFILL_US))

    assert decisions(site.ask(warm())) == ["warm"]


def test_when_all_were_claimed_nothing_is_kept(site: Site) -> None:
    site.tell(free=2)
    runs = [warm(), warm()]
    site.ask(*runs)

    site.room().release(0, departed=[run.run_id for run in runs])

    assert not site.redis.exists(sticky_key(site.model, "free"), holders_key(site.model, "free"))


def test_what_is_kept_for_a_worker_leaves_the_depth_of_the_shared_queue_to_others(site: Site) -> None:
    site.tell(free=3)
    runs = [(warm(), Newcomer(uuid7(), uuid4(), 100)) for _ in range(3)]

    site.ask(*chain(*runs), lookahead=2)

    assert site.queue(worker=GPU) == [kept.run_id for kept, _ in runs[:2]]
    assert site.queue() == [cold.run_id for _, cold in runs[:2]]


def test_the_wait_is_longer_only_by_what_it_exceeds_that_for_any_worker(site: Site) -> None:
    """Others wait all along, and a run leaves each 100 ms."""
    crowd = [Newcomer(uuid7(), uuid4(), 100) for _ in range(200)]
    site.ask(*crowd, lookahead=0)
    for _ in range(50):
        site.now_ms += 1000
        left = site.room().release(10).taken
        site.room().release(0, departed=[each.run_id for each in left])
    site.redis.delete(f"room:{site.model}:free")
    for _ in range(4):
        site.put(uuid7())
    site.tell(interval_ms=850)

    [route] = routes(site.ask(warm()))

    assert route is not None
    assert (route.decision, route.saving_ms) == (Decision.WARM, 500)
    assert route.wait_ms == pytest.approx(850 - 4 * 100, abs=50)
    site.now_ms += 850
    assert not site.room().release(0).late
    site.now_ms += 100
    assert site.room().release(0).late


def test_who_has_waited_for_long_enough_goes_to_the_front_of_all_by_any_release(site: Site) -> None:
    site.tell(free=2)
    first, second = warm(), warm()
    site.ask(first)
    site.now_ms += 1
    site.ask(second)
    cold = Newcomer(uuid7(), uuid4(), 100)
    site.ask(cold)

    site.now_ms += 499
    assert site.room().release(LOOKAHEAD, report=Report(OTHER, 0)).late == [first.run_id]
    assert site.queue() == [first.run_id, cold.run_id]
    assert site.queue(worker=GPU) == [second.run_id]

    site.now_ms += 1
    assert site.room().release(LOOKAHEAD).late == [second.run_id]
    assert site.queue() == [second.run_id, first.run_id, cold.run_id]


def test_those_who_are_late_together_keep_their_order(site: Site) -> None:
    site.tell(free=3)
    runs = [warm() for _ in range(3)]
    for run in runs:
        site.ask(run)

    site.now_ms += 500
    site.room().release(0)

    assert site.queue() == [run.run_id for run in runs]


def test_one_that_a_worker_has_taken_is_not_late(site: Site) -> None:
    site.tell(free=1)
    site.ask(warm())
    site.redis.rpop(sticky_name(queue_name(site.model, "free"), GPU))

    site.now_ms += 500

    assert site.room().release(0).late == []
    assert site.queue() == []


def test_a_short_saving_leaves_the_worker_time_to_take_it(site: Site) -> None:
    site.tell(free=1, prefill_us=0)
    run = warm()
    site.ask(run)

    site.now_ms += 199
    assert site.room().release(0).late == []
    site.now_ms += 1
    assert site.room().release(0).late == [run.run_id]


def test_a_sweep_finds_who_is_late_in_each_tier(site: Site) -> None:
    site.tell(free=2)
    free, pro = warm(), warm()
    site.ask(free, tier="free")
    site.ask(pro, tier="pro")
    assert site.workers.sweep() == []

    site.now_ms += 500

    assert set(site.workers.sweep()) == {free.run_id, pro.run_id}
    assert (site.queue("free"), site.queue("pro")) == ([free.run_id], [pro.run_id])


@pytest.mark.parametrize("goes", ["silent", "warm"])
def test_a_sweep_drains_the_queue_of_a_silent_worker_at_once(site: Site, goes: str) -> None:
    site.tell(free=1)
    run = warm(tokens=1_000_000)  # worth minutes
    site.ask(run)

    site.now_ms += 10_000
    if goes == "warm":
        site.tell(free=1)

    assert site.workers.sweep() == ([run.run_id] if goes == "silent" else [])
    assert site.queue(worker=None if goes == "silent" else GPU) == [run.run_id]


def test_a_sweep_drains_the_queue_of_a_worker_that_has_left(site: Site) -> None:
    site.tell(free=1)
    site.ask(run := warm())
    site.workers.leave(GPU)

    assert site.workers.sweep() == [run.run_id]
    assert site.queue() == [run.run_id]


def test_a_sweep_lets_go_what_came_back_from_a_worker(site: Site) -> None:
    """The broker puts it where it was, of which nothing is noted any more."""
    site.tell(free=2)
    stays, back = warm(), warm()
    site.ask(stays, back)
    site.room().release(0, departed=[back.run_id])

    assert site.workers.sweep() == [back.run_id]
    assert (site.queue(), site.queue(worker=GPU)) == ([back.run_id], [stays.run_id])


def test_a_worker_is_forgotten_a_day_after_it_fell_silent(site: Site) -> None:
    site.tell()
    site.now_ms += 24 * 3600 * 1000
    site.workers.sweep()
    assert site.redis.hexists(workers_key(site.model), GPU)

    site.now_ms += 1
    site.workers.sweep()

    assert not site.redis.hexists(workers_key(site.model), GPU)


def test_the_place_of_one_that_is_kept_is_that_among_those_kept(site: Site) -> None:
    site.tell(free=2)
    runs = [warm(), warm()]
    site.ask(*runs)
    site.put(uuid7())

    assert [site.room().position(run.run_id) for run in runs] == [1, 2]


def test_one_that_is_kept_or_came_back_is_not_missing(site: Site) -> None:
    site.tell(free=1)
    kept, back, lost = warm(), uuid7(), uuid7()
    site.ask(kept)
    site.put(back, worker=GPU)

    assert site.room().missing([kept.run_id, back, lost]) == [lost]


def test_one_that_is_kept_can_be_taken_back(site: Site) -> None:
    site.tell(free=1, interval_ms=501)
    gone = warm()
    site.ask(gone)

    assert site.room().remove(gone)
    assert not site.room().remove(gone)

    assert site.queue(worker=GPU) == []
    assert decisions(site.ask(warm())) == ["warm"]


def test_one_that_is_not_kept_any_more_can_be_taken_back(site: Site) -> None:
    site.tell(free=1)
    site.ask(gone := warm())
    site.now_ms += 500
    site.room().release(0)

    assert site.room().remove(gone)
    assert site.queue() == []


def test_who_waits_in_the_room_is_warm_when_its_turn_comes(site: Site) -> None:
    site.ask(run := warm(), lookahead=0)
    site.tell(free=1)

    assert decisions(site.sent(site.room().release(1))) == ["warm"]
    assert site.queue(worker=GPU) == [run.run_id]


def test_one_that_comes_again_is_kept_once(site: Site) -> None:
    site.tell(free=9)
    run = warm()
    site.ask(run)
    again = Newcomer(run.run_id, run.user_id, run.cost, was_charged=True, warm=run.warm)

    assert decisions(site.ask(again)) == ["warm"]

    site.room().release(0, departed=[run.run_id])
    assert not site.redis.exists(sticky_key(site.model, "free"), holders_key(site.model, "free"))


def test_what_is_kept_for_others_does_not_wait_for_a_worker(site: Site) -> None:
    site.tell(free=1)
    site.ask(warm(), tier="pro")
    site.ask(Newcomer(uuid7(), uuid4(), 100))

    waiting = {
        worker: site.room().release(LOOKAHEAD, report=Report(worker, 1, 0, 0)).waiting for worker in (GPU, OTHER)
    }

    assert waiting == {GPU: {"pro": 1, "free": 1}, OTHER: {"pro": 0, "free": 1}}
    assert site.room().release(0).waiting == {"pro": 1, "free": 1}


def test_users_do_not_start_anew_while_one_is_kept(site: Site) -> None:
    site.tell(free=1)
    site.ask(run := warm())
    site.ask(Newcomer(uuid7(), uuid4(), 100), lookahead=0)

    assert site.redis.zscore(f"counters:{site.model}:free", str(run.user_id)) == 100


def test_a_room_that_an_earlier_release_filled_goes_on(site: Site, redis: Redis) -> None:
    site.tell(free=1)
    old, new = Newcomer(uuid7(), uuid4(), 100), warm()
    site.ask(old, lookahead=0)  # as that had it: nobody is warm
    site.ask(new, lookahead=0)

    assert decisions(site.room().release(2)) == ["", "warm"]
