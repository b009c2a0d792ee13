"""Who may wait for a model while its queue fills."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from scheduler.admission import Waiting
from scheduler.models import Model, Tier

WEIGHTS = {"free": 1, "plus": 3, "pro": 8}
MARKS = {"free": 60, "plus": 80, "pro": 100}
TIERS = {slug: Tier(slug=slug, weight=WEIGHTS[slug], shed_at_percent=MARKS[slug], queue_depth=10_000) for slug in MARKS}
# 125 of them are kept: 10, 31 and 83.
MODEL = Model(slug="model", queue_depth=500)


def places(slug: str, model: Model = MODEL, **runs: int) -> int:
    return Waiting(runs, WEIGHTS).places(model, TIERS[slug])


def fill(slug: str, model: Model = MODEL, **runs: int) -> int:
    """How many of the tier wait when no more may."""
    while places(slug, model, **runs) > 0:
        runs[slug] = runs.get(slug, 0) + 1
    return runs[slug]


def test_a_tier_that_comes_alone_has_its_marks_part() -> None:
    assert fill("free") == 300
    assert fill("plus") == 400


def test_what_is_kept_for_others_nobody_takes() -> None:
    assert fill("pro") == 500 - 10 - 31


def test_tiers_that_are_saturated_leave_the_others_their_part() -> None:
    plus = fill("plus")
    pro = fill("pro", plus=plus)
    assert plus + pro == 490
    assert fill("free", plus=plus, pro=pro) == 10
    assert places("pro", free=10, plus=plus, pro=pro) == 0


def test_where_there_is_no_place_it_says_how_many_are_to_leave_first() -> None:
    waiting = Waiting({"free": 250, "pro": 240}, WEIGHTS)
    assert waiting.places_at_model(MODEL, TIERS["free"]) == 300 - 490


def test_a_tiers_own_depth_bounds_what_is_kept_for_it_too() -> None:
    small = Tier(slug="free", weight=1, shed_at_percent=60, queue_depth=2)
    assert Waiting({"free": 2, "pro": 400}, WEIGHTS).places(MODEL, small) == 0


def test_nothing_is_kept_for_a_tier_that_may_not_use_the_model() -> None:
    assert Waiting({"pro": 499}, {"pro": 8}).places(MODEL, TIERS["pro"]) == 1
    assert Waiting({"pro": 499}, {"pro": 8}).places(MODEL, TIERS["free"]) < 1


@pytest.mark.parametrize("depth", [1, 2, 3, 7, 50, 500])
def test_whoever_comes_the_depth_is_never_passed_and_each_keeps_its_part(depth: int) -> None:
    model, dice, runs = Model(slug="model", queue_depth=depth), random.Random(depth), Counter[str]()
    for _ in range(5_000):
        slug = dice.choices(list(WEIGHTS), weights=(3, 1, 5))[0]
        if dice.random() < 0.45:
            runs[slug] -= runs[slug] > 0
        elif places(slug, model, **runs) > 0:
            runs[slug] += 1
        assert runs.total() <= depth
        if depth >= len(WEIGHTS):
            kept = {slug: max(1, depth * 25 * weight // 1200) for slug, weight in WEIGHTS.items()}
            assert all(places(slug, model, **runs) > 0 for slug in WEIGHTS if runs[slug] < kept[slug])


def test_the_depth_holds_when_an_operator_lowers_it_under_those_who_wait() -> None:
    assert places("free", Model(slug="model", queue_depth=50), plus=200, pro=200) < 1
