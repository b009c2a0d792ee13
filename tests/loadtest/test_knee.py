"""The knee is where a bound is crossed, wherever the steps lie and whatever they are disturbed by."""

from __future__ import annotations

import random

import pytest

from loadtest.figures import StepFigures
from loadtest.knee import Advice, Bounds, Knee, Measure, State, advice_of, knee_of, undisturbed
from tests.loadtest.stepped import step

BOUNDS = Bounds(ttft_s=2.0, speed=10.0)


def test_without_steps_nothing_is_known() -> None:
    assert knee_of([], BOUNDS) == Knee(State.UNKNOWN)
    assert knee_of([step(4, ttft_s=None, speed=None, questions=0)], BOUNDS).state is State.UNKNOWN
    assert advice_of(Knee(State.UNKNOWN), 0.25) is None


def test_where_all_steps_are_within_the_bounds_the_knee_lies_above_them() -> None:
    knee = knee_of([step(4), step(8), step(12)], BOUNDS)

    assert knee == Knee(State.ABOVE, 12.0)
    assert advice_of(knee, 0.25) == Advice(9, 0.25)


def test_where_the_first_step_is_beyond_a_bound_no_capacity_is_advised() -> None:
    knee = knee_of([step(4, ttft_s=3.0), step(8, ttft_s=9.0)], BOUNDS)

    assert knee == Knee(State.BELOW, 4.0, Measure.TTFT)
    assert advice_of(knee, 0.25) is None


def test_the_first_words_wait_is_crossed_on_a_logarithmic_scale() -> None:
    knee = knee_of([step(4, ttft_s=1.0), step(8, ttft_s=4.0)], BOUNDS)

    assert knee.state is State.FOUND
    assert knee.broke is Measure.TTFT
    assert knee.users == pytest.approx(6.0)


def test_the_speed_is_crossed_where_a_tokens_time_is() -> None:
    # 50 ms a token at 10 users and 150 at 20: 100 ms, which is 10 tokens/s, lies in the middle.
    knee = knee_of([step(10, speed=20.0), step(20, speed=20 / 3)], BOUNDS)

    assert knee.broke is Measure.SPEED
    assert knee.users == pytest.approx(15.0)


def test_the_bound_that_is_crossed_first_is_the_one_that_broke() -> None:
    knee = knee_of([step(10, ttft_s=0.5, speed=10.5), step(20, ttft_s=2.1, speed=5.0)], BOUNDS)

    assert knee.broke is Measure.SPEED
    assert knee.users < 12


def test_a_deployment_that_turns_people_away_is_beyond_its_bound_however_fast_it_is_for_the_others() -> None:
    full = step(8, ttft_s=0.1, refusals={"queue_full": 30})

    assert BOUNDS.passed(full) == [Measure.TURNED_AWAY]
    knee = knee_of([step(4), full], BOUNDS)
    assert knee.broke is Measure.TURNED_AWAY
    assert 4 < knee.users < 5


def test_refusals_for_a_users_own_limits_do_not_tell_of_the_deployments_capacity() -> None:
    assert BOUNDS.passed(step(8, refusals={"budget_exhausted": 30, "too_many_runs": 9})) == []


def test_failures_count_as_turned_away() -> None:
    assert BOUNDS.passed(step(8, questions=40, failures={"stream_cut": 3})) == [Measure.TURNED_AWAY]


def test_a_step_in_which_nobody_had_a_first_word_is_beyond_the_bound() -> None:
    assert Measure.TTFT in BOUNDS.passed(step(8, ttft_s=None, speed=None))


def test_a_step_that_was_disturbed_and_is_followed_by_good_ones_is_not_the_knee() -> None:
    steps = [step(4), step(8, ttft_s=2.2), step(12, ttft_s=0.9), step(16, ttft_s=1.2), step(20, ttft_s=4.0)]

    assert 16 < knee_of(steps, BOUNDS).users < 20


def test_the_order_of_the_steps_does_not_matter() -> None:
    steps = [step(users, ttft_s=0.2 * 1.2**users) for users in (4, 8, 12, 16)]

    assert knee_of(steps, BOUNDS) == knee_of(steps[::-1], BOUNDS)


def test_the_better_of_two_steps_of_as_many_users_counts() -> None:
    once, again = step(8, ttft_s=9.0), step(8, ttft_s=1.0)

    for both in ([once, again], [again, once]):
        assert knee_of([step(4), *both], BOUNDS).state is State.ABOVE


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], []),
        ([(1, 1.0), (2, 2.0)], [(1, 1.0), (2, 2.0)]),
        ([(1, 3.0), (2, 2.0), (3, 2.5)], [(1, 2.0), (2, 2.0), (3, 2.5)]),
        ([(2, 5.0), (1, 1.0), (2, 4.0)], [(1, 1.0), (2, 4.0)]),
    ],
)
def test_a_step_is_as_good_as_one_with_more_users_was(
    values: list[tuple[int, float]], expected: list[tuple[int, float]]
) -> None:
    assert undisturbed(values) == expected


def test_noise_of_a_third_moves_the_knee_by_less_than_a_fifth() -> None:
    dice = random.Random(7)
    true_speed = [40 / (1 + users / 8) for users in range(4, 44, 4)]  # 10 tokens/s at 24 users

    def noisy() -> list[StepFigures]:
        return [
            step(users, speed=speed * dice.uniform(0.85, 1.15))
            for users, speed in zip(range(4, 44, 4), true_speed, strict=True)
        ]

    knees = [knee_of(noisy(), BOUNDS).users for _ in range(200)]

    assert sum(abs(users / 24 - 1) < 0.2 for users in knees) > 190


def test_the_advice_is_a_whole_number_of_users_and_never_above_the_margin() -> None:
    assert advice_of(Knee(State.FOUND, 21.9, Measure.TTFT), 0.25) == Advice(16, 0.25)
    assert advice_of(Knee(State.FOUND, 20.0, Measure.TTFT), 0.25) == Advice(15, 0.25)
    assert advice_of(Knee(State.FOUND, 20.0, Measure.TTFT), 0.0) == Advice(20, 0.0)
    assert advice_of(Knee(State.FOUND, 1.2, Measure.TTFT), 0.3) == Advice(0, 0.3)
