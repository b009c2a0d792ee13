"""Steps by the clock: who is there when, what a step came to, and when it is enough."""

from __future__ import annotations

import time
from collections.abc import Callable

from loadtest.figures import Refusal, StepFigures, Window, figures_of
from loadtest.measuring import Answer, Clock, fail
from loadtest.plan import Plan

ENOUGH = 3
Told = Callable[[StepFigures], None]


class Recorder:
    """All that users met so far."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.answers: list[Answer] = []
        self.refusals: list[Refusal] = []

    def asked(self, tier: str, sent_at: float) -> Answer:
        """A question was taken; what comes of it is noted in what this returns."""
        answer = Answer(tier, sent_at)
        self.answers.append(answer)
        return answer

    def refused(self, tier: str, code: str) -> None:
        """A question was not taken for now."""
        self.refusals.append(Refusal(self.clock(), tier, code))

    def failed(self, tier: str, why: str) -> None:
        """A question met an error in place of an answer."""
        at = self.clock()
        fail(self.asked(tier, at), why, at)

    def forget(self, before: float) -> None:
        """Drop what ended earlier, so that a long test does not grow."""
        self.answers = [each for each in self.answers if each.ended_at is None or each.ended_at >= before]
        self.refusals = [each for each in self.refusals if each.at >= before]


class Steps:
    """One after the other, until a bound is passed for good, or there are no more.

    For good: for a whole step, for another of as many users, and for the next one too. What disturbs a test from
    outside often lasts for about a step.
    """

    def __init__(self, plan: Plan, recorder: Recorder, told: Told) -> None:
        self._plan = plan
        self._recorder = recorder
        self._told = told
        self._number = 0
        self._passed = 0  # steps in a row that were beyond a bound
        self._began_at: float | None = None

    def users_now(self) -> int | None:
        """How many there should be; None once the test is over. To be asked about each second."""
        now = self._recorder.clock()
        if self._began_at is None:
            self._began_at = now
        if now - self._began_at >= self._plan.step_seconds:
            self._passed = self._passed + 1 if self._is_passed(now) else 0
            if self._passed == ENOUGH:
                return None
            self._number += self._passed != 1
            self._began_at = now
        return self._plan.users(self._number)

    def _is_passed(self, now: float) -> bool:
        """Tells what the step that ends now came to; whether that is beyond a bound."""
        users = self._plan.users(self._number)
        assert users is not None
        assert self._began_at is not None
        window = Window(self._began_at + self._plan.warm_up_s, now)
        figures = figures_of(users, window, self._recorder.answers, self._recorder.refusals)
        figures = figures.begun_at(time.time() - window.seconds)
        self._told(figures)
        self._recorder.forget(window.begin)
        return bool(self._plan.bounds.passed(figures))
