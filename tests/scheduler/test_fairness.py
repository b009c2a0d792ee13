"""The order between tiers: shares by weight, to the token, and nobody left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from heapq import heappop, heappush
from itertools import pairwise
from random import Random

import pytest

from scheduler.fairness import FairOrder

WEIGHTS = {"free": 1, "plus": 3, "pro": 8}
SLOTS = 12


class Worker:
    """Slots that are never free while somebody waits; a run takes as long as it has tokens, at most a cost of 1000."""

    def __init__(self, order: FairOrder, used: float = 1.0) -> None:
        self.order = order
        self.served = Counter[str]()
        self._random = Random(7)
        self._used = used
        self._running: list[tuple[float, int, str, int, int]] = []
        self._now = 0.0

    def starts(self, count: int, waiting: Collection[str] = tuple(WEIGHTS)) -> Iterator[str]:
        """So many starts, while these have runs waiting all along and the others none."""
        self.order.rest(WEIGHTS.keys() - set(waiting))
        for number in range(count):
            while len(self._running) >= SLOTS:
                self._end_one()
            name = next(name for name in self.order.ranked() if name in waiting)
            self._start(name, number)
            yield name

    def _start(self, name: str, number: int) -> None:
        cost = self._random.randint(100, 1000)
        charge = self._random.randint(1, max(1, int(cost * self._used)))
        self.order.start(name, cost)
        heappush(self._running, (self._now + charge, number, name, cost, charge))

    def _end_one(self) -> None:
        self._now, _, name, cost, charge = heappop(self._running)
        self.served[name] += charge
        self.order.correct(name, cost, charge)


@pytest.fixture
def order() -> FairOrder:
    order = FairOrder()
    order.weigh(WEIGHTS)
    return order


def shares(served: Mapping[str, int]) -> dict[str, float]:
    """As parts of one."""
    total = sum(served.values())
    return {name: tokens / total for name, tokens in served.items()}


@pytest.mark.parametrize("used", [1.0, 0.1])
def test_shares_of_tokens_are_as_the_weights_whatever_runs_come_to(order: FairOrder, used: float) -> None:
    worker = Worker(order, used)

    list(worker.starts(5000))

    assert shares(worker.served) == pytest.approx({"free": 1 / 12, "plus": 3 / 12, "pro": 8 / 12}, rel=0.05)


def test_the_lowest_tier_is_never_left_out_for_long(order: FairOrder) -> None:
    starts = list(Worker(order, used=0.1).starts(5000))

    taken_at = [n for n, name in enumerate(starts) if name == "free"]
    between = [later - earlier for earlier, later in pairwise(taken_at)]
    assert max(between) < 5 * 12


def test_what_one_leaves_the_others_have_by_their_weights(order: FairOrder) -> None:
    worker = Worker(order)

    assert len(list(worker.starts(3000, waiting=["free", "plus"]))) == 3000
    assert shares(worker.served) == pytest.approx({"free": 1 / 4, "plus": 3 / 4}, rel=0.03)


def test_who_was_idle_comes_next_but_is_not_paid_back(order: FairOrder) -> None:
    worker = Worker(order)
    list(worker.starts(3000, waiting=["free", "plus"]))
    worker.order.rest(["pro"])

    back = list(worker.starts(240))

    assert back[0] == "pro"
    assert back.count("pro") / len(back) == pytest.approx(8 / 12, abs=0.1)


def test_a_tier_with_one_run_at_a_time_has_its_share_of_many_workers() -> None:
    """Each start of one is seen by all, and the next one waits as soon as it was."""
    starts, orders = Counter[str](), [FairOrder() for _ in range(8)]
    for order in orders:
        order.weigh(WEIGHTS)
    for number in range(4800):
        order = orders[number % len(orders)]
        name = order.ranked()[0]
        run(order, name)
        starts[name] += 1
        if name == "free":
            for each in orders:
                each.rest(["free"])
                each.rest([])

    assert shares(starts) == pytest.approx({"free": 1 / 12, "plus": 3 / 12, "pro": 8 / 12}, rel=0.1)


def test_a_round_is_one_of_those_who_wait() -> None:
    """A light tier that nobody uses is no measure of what its betters catch up."""
    order = FairOrder()
    order.weigh({"test": 1, "plus": 1000, "pro": 1000})
    for _ in range(300):
        order.rest(["test", "pro"])
        run(order, "plus")
    order.rest(["test"])

    back = []
    for _ in range(10):
        back.append(order.ranked()[0])
        run(order, back[-1])

    assert back.count("plus") >= 4


def test_those_who_come_back_one_after_the_other_catch_up_a_round_each(order: FairOrder) -> None:
    others = [f"team{number}" for number in range(5)]
    order.weigh({"free": 1, **dict.fromkeys(others, 8)})
    for _ in range(300):
        order.rest(others)
        run(order, "free")
    for comes in range(5):
        order.rest(others[comes + 1 :])
        run(order, order.ranked()[0])

    until_free = 0
    while (name := order.ranked()[0]) != "free":
        run(order, name)
        until_free += 1

    assert until_free <= 2 * 5 * 8  # a round that is due to each, and one to catch up


def test_a_round_is_all_that_an_idle_tier_catches_up(order: FairOrder) -> None:
    for _ in range(3000):
        order.rest(["pro"])
        run(order, next(name for name in order.ranked() if name != "pro"))
    order.rest([])

    back = []
    for _ in range(22):
        back.append(order.ranked()[0])
        run(order, back[-1])

    assert back[: WEIGHTS["pro"]].count("pro") >= WEIGHTS["pro"] - 1
    assert back.count("pro") <= WEIGHTS["pro"] + 12


@pytest.mark.parametrize("used", [1.0, 0.1])
def test_the_lowest_tier_that_comes_back_is_not_left_out_by_the_highest(order: FairOrder, used: float) -> None:
    worker = Worker(order, used)
    list(worker.starts(300, waiting=["pro"]))

    back = list(worker.starts(900, waiting=["free", "pro"]))

    assert "free" in back[: 2 * SLOTS]
    assert back.count("free") / len(back) == pytest.approx(1 / 9, abs=0.03)


def test_a_tier_that_comes_back_does_not_wait_for_what_others_reserved_in_vain(order: FairOrder) -> None:
    worker = Worker(order, used=0.1)
    list(worker.starts(1000, waiting=["free"]))

    back = list(worker.starts(120, waiting=["free", "pro"]))

    assert back.count("pro") / len(back) == pytest.approx(8 / 9, abs=0.1)


def test_a_new_weight_holds_at_once(order: FairOrder) -> None:
    worker = Worker(order)
    list(worker.starts(1000))
    order.weigh({**WEIGHTS, "free": 4})

    after = list(worker.starts(900))

    assert after.count("free") / len(after) == pytest.approx(4 / 15, abs=0.04)


def test_a_new_tier_starts_level_with_the_others(order: FairOrder) -> None:
    worker = Worker(order)
    list(worker.starts(1000))
    order.weigh({**WEIGHTS, "team": 12})

    after = list(worker.starts(240, waiting=[*WEIGHTS, "team"]))

    assert after.count("team") / len(after) == pytest.approx(1 / 2, abs=0.1)


def test_runs_of_unknown_cost_count_by_what_they_came_to(order: FairOrder) -> None:
    order.start("free", 0)
    order.correct("free", 0, 300)
    order.start("plus", 0)
    order.correct("plus", 0, 600)

    assert order.ranked() == ["pro", "plus", "free"]


def test_a_queue_that_is_not_known_is_not_counted(order: FairOrder) -> None:
    order.start("gone", 100)
    order.correct("gone", 100, 100)
    order.rest(["gone"])

    assert set(order.ranked()) == set(WEIGHTS)


def test_who_would_end_first_goes_first_though_another_had_a_little_less(order: FairOrder) -> None:
    for _ in range(100):
        run(order, "free")
    order.rest(["pro"])
    for _ in range(10):
        run(order, "pro")

    # Pro had a little more by weight than Free; one run more is an eighth of that.
    assert order.ranked()[:2] == ["plus", "pro"]


def run(order: FairOrder, name: str) -> None:
    order.start(name, 100)
    order.correct(name, 100, 100)


def test_what_waits_beside_the_tiers_makes_nobodys_round_longer() -> None:
    order = FairOrder(beside=lambda name: name == "background")
    order.weigh({**WEIGHTS, "background": 0.1})
    for _ in range(3000):
        order.rest(["pro"])
        run(order, next(name for name in order.ranked() if name != "pro"))
    order.rest([])

    back = []
    for _ in range(22):
        back.append(order.ranked()[0])
        run(order, back[-1])

    assert back.count("pro") <= WEIGHTS["pro"] + 12


def test_what_waits_beside_the_tiers_has_its_share_too() -> None:
    order = FairOrder(beside=lambda name: name == "background")
    order.weigh({**WEIGHTS, "background": 0.1})
    starts = Counter[str]()
    for _ in range(12_100):
        name = order.ranked()[0]
        run(order, name)
        starts[name] += 1

    assert starts["background"] == pytest.approx(100, abs=3)
