"""Steps go on by the clock, and end when a bound was passed for a whole one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from loadtest.behaviour import Behaviour, Person
from loadtest.figures import StepFigures
from loadtest.knee import Bounds
from loadtest.plan import Plan
from loadtest.stepping import Recorder, Steps

PLAN = Plan(step_users=4, step_seconds=10, most_users=10, bounds=Bounds(ttft_s=2.0, speed=5.0))


class Test:
    """A plan that is carried out by hand."""

    __test__ = False

    def __init__(self, plan: Plan = PLAN) -> None:
        self.now = 100.0
        self.told: list[StepFigures] = []
        self.recorder = Recorder(lambda: self.now)
        self._steps = Steps(plan, self.recorder, self.told.append)

    def users_at(self, now: float) -> int | None:
        self.now = 100.0 + now
        return self._steps.users_now()

    def answer(self, sent: float, first: float, each_s: float = 0.1) -> None:
        answer = self.recorder.asked("free", 100.0 + sent)
        answer.delta_at = [100.0 + first + number * each_s for number in range(10)]


def test_each_step_adds_users_up_to_the_most() -> None:
    test = Test()

    assert [test.users_at(at) for at in (0, 9.9, 10, 20, 29)] == [4, 4, 8, 10, 10]
    assert test.users_at(30) is None
    assert [step.users for step in test.told] == [4, 8, 10]


def test_what_comes_in_the_warm_up_does_not_count() -> None:
    test = Test()
    test.users_at(0)
    test.answer(sent=1, first=1.5)
    test.answer(sent=5, first=6.0)

    test.users_at(10)

    [step] = test.told
    assert step.questions == 1
    assert step.ttft_p50_s == pytest.approx(1.0)
    assert step.seconds == pytest.approx(7.0)


def test_a_step_beyond_a_bound_is_done_once_more_and_followed_by_one_before_it_is_enough() -> None:
    test = Test()
    test.users_at(0)
    test.answer(sent=5, first=8.5)
    assert test.users_at(10) == 4
    test.answer(sent=15, first=18.5)
    assert test.users_at(20) == 8
    test.answer(sent=25, first=28.5)

    assert test.users_at(30) is None
    assert [step.users for step in test.told] == [4, 4, 8]


def test_a_good_step_behind_two_that_were_disturbed_goes_on() -> None:
    test = Test()
    test.users_at(0)
    for sent in (5, 15):
        test.answer(sent=sent, first=sent + 3.5)
        test.users_at(sent + 5)
    test.answer(sent=25, first=25.5)

    assert test.users_at(30) == 10


def test_the_last_step_is_done_once_more_where_it_is_beyond_a_bound() -> None:
    test = Test(replace(PLAN, most_users=4))
    test.users_at(0)
    for sent in (5, 15):
        test.answer(sent=sent, first=sent + 3.5)

    assert test.users_at(10) == 4
    assert test.users_at(20) is None


def test_a_step_that_is_better_the_second_time_is_followed_by_the_next() -> None:
    test = Test()
    test.users_at(0)
    test.answer(sent=5, first=8.5)
    test.users_at(10)
    test.answer(sent=15, first=16)

    assert test.users_at(20) == 8


def test_a_step_of_slow_answers_is_beyond_its_bound_too() -> None:
    test = Test()
    test.users_at(0)
    test.answer(sent=4, first=4.2, each_s=0.5)

    assert test.users_at(10) == 4


def test_answers_that_ended_long_ago_are_forgotten() -> None:
    test = Test()
    test.users_at(0)
    test.answer(sent=1, first=2)
    test.recorder.answers[0].ended_at = 101.0
    test.recorder.refused("free", "queue_full")

    test.users_at(10)

    assert test.recorder.answers == []
    assert test.recorder.refusals == []


def test_a_plan_survives_its_file(tmp_path: Path) -> None:
    plan = replace(PLAN, figures=str(tmp_path / "steps"))
    plan.write(tmp_path / "plan")

    assert Plan.read(tmp_path / "plan") == plan


def test_the_same_seed_and_number_give_the_same_person() -> None:
    def said(person: Person) -> list[object]:
        return [person.question(), person.answer_tokens(), person.thinks_s(), person.goes_on()] * 5

    behaviour = Behaviour(think_s=5.0, turns=3.0, answer_tokens=48, seed=1)

    assert said(Person(behaviour, 2)) == said(Person(behaviour, 2))
    assert said(Person(behaviour, 2)) != said(Person(behaviour, 3))
    assert said(Person(behaviour, 2)) != said(Person(replace(behaviour, seed=2), 2))


def test_people_are_as_they_are_said_to_be() -> None:
    person = Person(Behaviour(think_s=5.0, turns=4.0, answer_tokens=48, seed=1), 0)
    thought = [person.thinks_s() for _ in range(4000)]
    ends = sum(not person.goes_on() for _ in range(4000))
    words = sorted(len(person.question().split()) for _ in range(2000))
    caps = [person.answer_tokens() for _ in range(4000)]

    assert sum(thought) / 4000 == pytest.approx(5.0, rel=0.1)
    assert ends / 4000 == pytest.approx(0.25, rel=0.1)
    assert 8 <= words[1000] <= 24
    assert words[-20] > 80  # some are long
    assert sorted(caps)[2000] == pytest.approx(48, rel=0.1)
    assert max(caps) <= 144
