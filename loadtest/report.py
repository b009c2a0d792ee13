"""A test as a whole: what was asked for, what came of it, as JSON and in words."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from loadtest.figures import StepFigures
from loadtest.knee import MOST_TURNED_AWAY, Advice, Bounds, Knee, Measure, State, advice_of, knee_of
from loadtest.options import Options
from loadtest.target import Target

FORMAT = 1
SCRIPTED = "scripted"
DISTURBED = 0.1  # of all cores


class NoReport(Exception):
    """A file is none of ours; the text says why."""


@dataclass(frozen=True)
class Report:
    """One test; `is_whole` unless it was stopped before its end."""

    at: datetime
    model: str
    engine: str
    url: str
    limits: Sequence[str]
    machine: Mapping[str, Any]
    options: Mapping[str, Any]
    bounds: Bounds
    margin: float
    steps: Sequence[StepFigures]
    is_whole: bool

    @cached_property
    def knee(self) -> Knee:
        """Where a bound is crossed."""
        return knee_of(self.steps, self.bounds)

    @property
    def advice(self) -> Advice | None:
        """How many users to plan with."""
        return advice_of(self.knee, self.margin)

    @property
    def is_scripted(self) -> bool:
        """Whether no model answered at all."""
        return self.engine == SCRIPTED


def reported(
    options: Options, target: Target, steps: Sequence[StepFigures], machine: Mapping[str, Any], *, is_whole: bool
) -> Report:
    """The report on a test that ends now."""
    return Report(
        datetime.now(UTC),
        target.model,
        target.engine,
        target.url,
        target.limits,
        machine,
        options.as_json(),
        options.bounds,
        options.margin,
        steps,
        is_whole,
    )


def as_json(report: Report) -> str:
    """For programs, and for `read`."""
    told = {
        "format": FORMAT,
        **{name: value for name, value in asdict(report).items() if name != "at"},
        "at": report.at.isoformat(timespec="seconds"),
        "knee": asdict(report.knee),
        "advice": None if report.advice is None else asdict(report.advice),
    }
    return json.dumps(told, indent=1, ensure_ascii=False) + "\n"


def read(path: Path) -> Report:
    """The report in a file of `as_json`'s. Raises `NoReport`."""
    try:
        told = json.loads(path.read_text("utf-8"))
        if told.pop("format") != FORMAT:
            raise NoReport(f"{path} is a report of another format")
        del told["knee"], told["advice"]
        told["at"] = datetime.fromisoformat(told["at"])
        told["bounds"] = Bounds(**told["bounds"])
        told["steps"] = [StepFigures.from_json(step) for step in told["steps"]]
        return Report(**told)
    except OSError as error:
        raise NoReport(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise NoReport(f"{path} is no report of a load test") from error


def knee_in_words(report: Report) -> str:
    """What the steps say, in a sentence or two."""
    knee, bounds = report.knee, report.bounds
    if knee.state is State.UNKNOWN:
        return "No step came to an end: nothing is known."
    if knee.state is State.ABOVE:
        return f"Not found up to {knee.users:.0f} users: all bounds held. Go further with --most-users."
    assert knee.broke is not None
    if knee.state is State.BELOW:
        return f"Below {knee.users:.0f} users: the first step was beyond its bound already, {said(knee.broke, bounds)}."
    return f"{knee.users:.1f} users: from there on {said(knee.broke, bounds)}."


def said(measure: Measure, bounds: Bounds) -> str:
    """What it means that the bound of a measure is passed."""
    return {
        Measure.TTFT: f"5 of 100 questions wait longer than {bounds.ttft_s:g} s for their first words",
        Measure.SPEED: f"the median user gets fewer than {bounds.speed:g} tokens/s",
        Measure.TURNED_AWAY: f"more than {MOST_TURNED_AWAY:.0%} of questions are refused or fail",
    }[measure]


def advice_in_words(report: Report) -> str:
    """What to plan with."""
    if report.advice is None:
        return "None: a capacity within the bounds was not seen."
    below = "the knee" if report.knee.state is State.FOUND else "the most that were tried"
    return f"{report.advice.users} users like these, {report.margin:.0%} below {below}."


def step_in_words(step: StepFigures) -> str:
    """One line for whoever watches."""
    sent_away = sum(step.refusals.values())
    others = "" if step.others is None or step.others < DISTURBED else f"; others took {step.others:.0%} of the cores"
    return (
        f"{step.users:4} users: first words p50 {_seconds(step.ttft_p50_s)}, p95 {_seconds(step.ttft_p95_s)}; "
        f"{_speed(step.speed_p50)} tokens/s each, {step.tokens_per_s:.0f} in all; "
        f"{sent_away} refused, {sum(step.failures.values())} failed{others}"
    )


def compared(first: Report, second: Report) -> str:
    """The knees of two tests, and their ratio where both were found."""
    knees = [first.knee, second.knee]
    if any(knee.state is not State.FOUND for knee in knees):
        return f"No ratio: {' / '.join(knee_in_words(report) for report in (first, second))}"
    users = [knee.users for knee in knees]
    apart = max(users) / min(users) - 1
    return f"Knees at {users[0]:.1f} and {users[1]:.1f} users: ratio {users[1] / users[0]:.2f}, {apart:.0%} apart."


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f} s"


def _speed(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"
