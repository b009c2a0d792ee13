"""How fast runs leave a model's queues: what counts, what does not, and what it says of the wait."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from random import Random
from statistics import median, quantiles
from uuid import uuid4

import pytest
from django.conf import settings
from redis import Redis
from uuid6 import uuid7

from scheduler.dispensable import DispensableRedis
from scheduler.estimates import Drain, Estimates
from scheduler.room import Correction, Room, room_key
from tests.metering import metered
from tests.rooms import somebody, strangers

SLOTS = 16
STEP_S = 5.0


class Queue:
    """A tier's room whose clock the test moves on."""

    def __init__(self, redis: Redis, model: str, tier: str = "free") -> None:
        self._redis = redis
        self._now_ms = 1_700_000_000_000
        self._room = Room(redis, model, tier, clock=lambda: self._now_ms)
        self._estimates = Estimates(DispensableRedis(settings.BROKER_URL), clock=lambda: self._now_ms)
        self._room_key, self._model = room_key(model, tier), model

    @property
    def drain(self) -> Drain:
        """As it is measured now."""
        return self._estimates.drain(self._model)

    def wait_s(self, place: int) -> float:
        """What the run at that place is told."""
        wait_s = self.drain.wait_s(place - 1)
        assert wait_s is not None
        return wait_s

    def pass_s(self, seconds: float) -> None:
        """Time passes."""
        self._now_ms += round(1000 * seconds)

    def arrive(self, count: int) -> None:
        """So many runs come to wait."""
        self._room.release(0, strangers(uuid7() for _ in range(count)))

    def leave(self, count: int, workers: int = 1) -> None:
        """So many runs leave for workers at once, each of which tells of its own."""
        self._redis.zpopmin(self._room_key, count)
        for worker in range(workers):
            self._room.release(0, departed=somebody(count // workers + (worker < count % workers)))

    def empty(self) -> None:
        """The last ones who wait are cancelled."""
        self._redis.delete(self._room_key)
        self._room.release(0)

    def empty_unseen(self) -> None:
        """The last ones who wait are cancelled in a worker's hands, of which nobody tells."""
        self._redis.delete(self._room_key)

    def drain_in_bursts(self, bursts: int, slots: int = SLOTS, step_s: float = STEP_S, workers: int = 1) -> None:
        """A full engine's slots come free at the same step, again and again, and somebody waits all along."""
        for _ in range(bursts):
            self.arrive(slots)
            self.leave(slots, workers)
            self.pass_s(step_s)


def gaps_between_ends(slots: int, mean_s: float, count: int) -> Iterator[float]:
    """Seconds between the ends of answers of any length, while every slot is taken again as soon as it is free."""
    length = partial(Random(7).expovariate, 1 / mean_s)
    ends = sorted(length() for _ in range(slots))
    now_s = 0.0
    for _ in range(count):
        end_s = heapq.heapreplace(ends, ends[0] + length())
        yield end_s - now_s
        now_s = end_s


@pytest.fixture
def queue(redis: Redis, name: str) -> Queue:
    return Queue(redis, name)


@pytest.fixture
def crowd(queue: Queue) -> Queue:
    """A queue with more runs than the test will take."""
    queue.arrive(200)
    return queue


def test_nothing_is_said_before_anything_was_measured(queue: Queue) -> None:
    assert queue.drain == Drain()
    queue.arrive(3)
    queue.pass_s(100)

    assert queue.drain.waiting == {"free": 3}
    assert queue.drain.wait_s(0) is None
    assert queue.drain.eta_s("free", 1) is None
    assert queue.drain.retry_after_s(0) >= 1


@pytest.mark.parametrize("since_burst_s", [0.0, 1.5, 2.5, 4.9])
@pytest.mark.parametrize("workers", [1, 3, 16])
def test_the_wait_of_a_run_far_back_is_true_though_runs_leave_in_bursts(
    crowd: Queue, since_burst_s: float, workers: int
) -> None:
    crowd.drain_in_bursts(8, workers=workers)
    crowd.leave(SLOTS, workers)
    crowd.pass_s(since_burst_s)

    place = 50
    true_s = -(-place // SLOTS) * STEP_S - since_burst_s
    assert crowd.wait_s(place) == pytest.approx(true_s, rel=0.3)


def test_who_is_next_waits_half_the_time_between_bursts_on_average(crowd: Queue) -> None:
    crowd.drain_in_bursts(8)

    assert crowd.wait_s(1) == pytest.approx(STEP_S / 2, rel=0.3)


@pytest.mark.parametrize("step_s", [0.5, 2.0, 30.0, 120.0])
def test_the_wait_is_true_for_one_slot_of_any_speed(crowd: Queue, step_s: float) -> None:
    crowd.drain_in_bursts(12, slots=1, step_s=step_s)
    crowd.leave(1)

    assert crowd.wait_s(10) == pytest.approx(10 * step_s, rel=0.3)


@pytest.mark.parametrize("workers", [1, 4])
def test_the_wait_is_true_when_slots_come_free_one_by_one(crowd: Queue, workers: int) -> None:
    place, told, left_at_s = 50, [], [0.0]
    for gap_s in gaps_between_ends(slots=SLOTS * workers, mean_s=10 * workers, count=400):
        crowd.arrive(1)
        crowd.leave(1)
        told.append(crowd.wait_s(place) if crowd.drain.runs else 0.0)
        crowd.pass_s(gap_s)
        left_at_s.append(left_at_s[-1] + gap_s)

    ratios = [told[n] / (left_at_s[n + place] - left_at_s[n]) for n in range(100, 350)]
    assert median(ratios) == pytest.approx(1, rel=0.1)
    assert quantiles(ratios, n=10)[0] > 0.65
    assert quantiles(ratios, n=10)[-1] < 1.3


def test_three_bursts_are_enough_to_say_something(crowd: Queue) -> None:
    crowd.drain_in_bursts(2)
    crowd.leave(SLOTS)

    assert crowd.wait_s(50) == pytest.approx(50 / SLOTS * STEP_S, rel=0.3)


def test_an_idle_hour_is_not_taken_for_a_slow_one(crowd: Queue) -> None:
    crowd.drain_in_bursts(8)
    crowd.empty()
    busy = crowd.wait_s(50)
    crowd.pass_s(3600)
    crowd.arrive(60)
    crowd.leave(SLOTS)

    assert crowd.wait_s(50) == pytest.approx(busy, rel=0.01)
    crowd.drain_in_bursts(2)
    assert crowd.wait_s(50) == pytest.approx(busy, rel=0.3)


def test_a_quiet_system_whose_runs_leave_as_they_come_measures_nothing(queue: Queue) -> None:
    for _ in range(10):
        queue.arrive(1)
        queue.leave(1)
        queue.pass_s(60)

    assert queue.drain.wait_s(0) is None


def test_idle_slots_that_fill_at_once_are_not_taken_for_fast_ones(crowd: Queue) -> None:
    crowd.drain_in_bursts(8)
    busy = crowd.wait_s(50)
    for _ in range(20):
        crowd.empty()
        crowd.pass_s(60)
        crowd.arrive(SLOTS + 1)
        for _ in range(SLOTS):
            crowd.leave(1)

    assert crowd.wait_s(50) == pytest.approx(busy, rel=0.01)


def test_slots_that_found_nobody_are_not_taken_for_slow_ones(crowd: Queue) -> None:
    crowd.drain_in_bursts(8)
    busy = crowd.wait_s(50)
    crowd.empty()
    for _ in range(10):  # of sixteen that come free only three find a run, which had to wait for that step
        crowd.arrive(3)
        crowd.leave(3)
        crowd.pass_s(STEP_S)
    for _ in range(10):  # and the last three of a crowd
        crowd.arrive(SLOTS + 3)
        crowd.leave(SLOTS)
        crowd.pass_s(STEP_S)
        crowd.leave(3)
        crowd.pass_s(60)

    assert crowd.wait_s(50) == pytest.approx(busy, rel=0.01)


def test_with_all_workers_dead_the_wait_grows(crowd: Queue) -> None:
    crowd.drain_in_bursts(8)
    crowd.leave(SLOTS)
    waits = []
    for _ in range(4):
        waits.append(crowd.wait_s(1))
        crowd.pass_s(60)

    assert waits == sorted(waits)
    assert waits[-1] > 150


def test_workers_that_died_while_nobody_waited_are_missed_once_somebody_does(crowd: Queue) -> None:
    crowd.drain_in_bursts(8)
    crowd.empty()
    crowd.pass_s(3600)
    crowd.arrive(1)
    before = crowd.wait_s(1)
    crowd.pass_s(300)
    crowd.arrive(1)

    assert before < 2 * STEP_S
    assert crowd.wait_s(1) > 250


def test_who_comes_to_a_queue_that_ran_dry_unseen_is_not_told_of_the_time_since(crowd: Queue) -> None:
    crowd.drain_in_bursts(8)
    busy = crowd.wait_s(50)
    crowd.empty_unseen()
    crowd.pass_s(3600)

    crowd.arrive(60)
    assert crowd.wait_s(50) == pytest.approx(busy, rel=0.3)

    crowd.leave(SLOTS)
    crowd.drain_in_bursts(3)
    assert crowd.wait_s(50) == pytest.approx(busy, rel=0.3)


def test_a_tier_that_ran_dry_unseen_makes_no_backlog_of_the_others_quiet_hours(redis: Redis, name: str) -> None:
    free, pro = (Queue(redis, name, tier) for tier in ("free", "pro"))
    free.arrive(200)
    free.drain_in_bursts(8)
    busy = free.wait_s(50)
    pro.arrive(1)
    pro.empty_unseen()
    free.empty()
    for _ in range(10):
        free.arrive(1)
        free.leave(1)
        free.pass_s(600)

    assert free.wait_s(50) == pytest.approx(busy, rel=0.01)
    assert free.drain.waiting == {"free": 0, "pro": 0}


def test_a_worker_that_joins_is_believed_within_the_window(crowd: Queue) -> None:
    crowd.drain_in_bursts(30, slots=4)
    alone = crowd.wait_s(50)
    crowd.drain_in_bursts(20, slots=8)

    assert crowd.wait_s(50) == pytest.approx(alone / 2, rel=0.3)


def test_an_outage_that_is_over_hardly_counts(crowd: Queue) -> None:
    crowd.drain_in_bursts(8)
    before = crowd.wait_s(50)
    crowd.pass_s(1800)
    assert crowd.wait_s(50) > 1800
    crowd.drain_in_bursts(2)

    assert before < crowd.wait_s(50) < 2 * before
    crowd.drain_in_bursts(24)
    assert crowd.wait_s(50) == pytest.approx(before, rel=0.3)


def test_answers_that_take_ten_times_as_long_are_believed_within_a_few_of_them(crowd: Queue) -> None:
    crowd.drain_in_bursts(20)
    crowd.drain_in_bursts(8, step_s=10 * STEP_S)

    assert crowd.wait_s(50) == pytest.approx(50 / SLOTS * 10 * STEP_S, rel=0.3)


def test_a_clock_that_goes_back_does_no_harm(crowd: Queue) -> None:
    crowd.drain_in_bursts(4)
    crowd.pass_s(-3600)
    crowd.drain_in_bursts(30, slots=4)

    assert crowd.wait_s(50) == pytest.approx(50 / 4 * STEP_S, rel=0.3)


def test_telling_of_departures_costs_no_round_trip(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    queue.arrive(3)

    with metered(monkeypatch) as costs:
        queue._room.release(0, strangers([uuid7()]), departed=somebody(2))

    assert costs.round_trips == 1


def test_places_told_in_whole_seconds_are_at_least_one() -> None:
    fast = Drain(runs=1000, busy_ms=1000, squares=1000)
    slow = Drain(runs=2, busy_ms=5000, squares=2 * 2500**2)

    assert fast.eta_s("free", 1) == fast.retry_after_s(0) == 1
    assert slow.wait_s(2) == 6.25
    assert (slow.eta_s("free", 3), slow.retry_after_s(2)) == (6, 7)


def test_from_other_tiers_go_before_as_many_as_have_their_turn_or_wait() -> None:
    drain = Drain(runs=10, busy_ms=10_000, squares=10 * 1000**2, waiting={"free": 40, "plus": 3, "pro": 80})

    assert drain.ahead("free", 1) == 0 + 1 + 1
    assert drain.ahead("free", 20) == 19 + 3 + 20
    assert drain.ahead("pro", 60) == 59 + 40 + 3
    assert drain.eta_s("pro", 60) == round(0.5 + 102)


def test_from_a_heavier_tier_more_go_before_and_from_one_with_longer_runs_fewer() -> None:
    shares = Drain(waiting={"free": 90, "pro": 90}, weights={"free": 1, "pro": 8})
    assert shares.ahead("free", 3) == 2 + 24
    assert shares.ahead("pro", 3) == 2 + 1
    assert shares.ahead("free", 50) == 49 + 90

    longer = replace(shares, charges={"free": 100.0, "pro": 400.0})
    assert longer.ahead("free", 3) == 2 + 6
    assert longer.ahead("pro", 3) == 2 + 2


def test_who_will_come_to_another_tier_while_one_waits_goes_before_too(redis: Redis, name: str) -> None:
    free, pro = (Queue(redis, name, tier) for tier in ("free", "pro"))
    Estimates(DispensableRedis(settings.BROKER_URL)).note_weights(name, {"free": 1, "pro": 3})
    free.arrive(20)
    for second in range(400):  # a slot comes free each second, and three times of four somebody of Pro is there for it
        tier = free if second % 4 == 0 else pro
        tier.arrive(1)
        tier.leave(1)
        for queue in (free, pro):
            queue.pass_s(1)

    assert free.drain.waiting == {"free": 20, "pro": 0}
    assert free.drain.eta_s("free", 10) == pytest.approx(40, rel=0.1)
    for queue in (free, pro):
        queue.pass_s(300)
    assert sum(free.drain.flows.values()) < 0.01


def test_weights_and_what_runs_come_to_are_told_with_the_drain(redis: Redis, name: str) -> None:
    estimates = Estimates(DispensableRedis(settings.BROKER_URL))
    estimates.note_weights(name, {"free": 1, "pro": 8})
    room = Room(redis, name, "free")
    room.release(0, corrections=[Correction(uuid4(), 500, 100)])
    room.release(0, corrections=[Correction(uuid4(), 500, 164)] * 2)

    drain = estimates.drain(name)

    assert drain.weights == {"free": 1, "pro": 8}
    assert drain.charges == {"free": pytest.approx(102, abs=0.1)}


def test_tiers_that_share_slots_are_told_of_each_other(redis: Redis, name: str) -> None:
    free, pro = (Queue(redis, name, tier) for tier in ("free", "pro"))
    for queue in (free, pro):
        queue.arrive(100)
    for _ in range(10):  # in turn, half of the slots each
        for queue in (free, pro):
            queue.arrive(SLOTS // 2)
            queue.leave(SLOTS // 2)
        for queue in (free, pro):
            queue.pass_s(STEP_S)
    drain = free.drain

    assert drain.waiting == {"free": 100, "pro": 100}
    assert drain.eta_s("free", 40) == pytest.approx(40 / (SLOTS / 2) * STEP_S, rel=0.3)
    pro.empty()
    free.drain_in_bursts(40)
    assert free.drain.eta_s("free", 40) == pytest.approx(40 / SLOTS * STEP_S, rel=0.3)


def test_a_look_costs_one_round_trip(redis: Redis, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    estimates = Estimates(DispensableRedis(settings.BROKER_URL))
    estimates.drain(name)  # opens the connection

    with metered(monkeypatch) as costs:
        estimates.drain(name)

    assert costs.round_trips == 1
