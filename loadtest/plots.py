"""The plots of a report: each measure by the number of users, its bound, and the knee."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from loadtest.figures import StepFigures
from loadtest.knee import State
from loadtest.report import Report

SIZE_INCHES, DOTS_PER_INCH = (11.0, 7.6), 110
BLUE, LIGHT, RED, GREEN, GREY = "#2b5d9b", "#8fb3dd", "#b3372f", "#3b8a57", "#666666"
Value = Callable[[StepFigures], float | None]


def drawn(report: Report) -> bytes:
    """A PNG."""
    figure = Figure(figsize=SIZE_INCHES, dpi=DOTS_PER_INCH, layout="constrained")
    (first_words, speed), (tokens, away) = figure.subplots(2, 2)
    _first_words(first_words, report)
    _speed(speed, report)
    _tokens(tokens, report)
    _away(away, report)
    for axes in (first_words, speed, tokens, away):
        _finish(axes, report)
    scripted = ", SCRIPTED ENGINE: no model answered" if report.is_scripted else ""
    figure.suptitle(f"{report.model}, {report.engine}, {report.machine.get('cores')} cores{scripted}", fontsize=12)
    png = io.BytesIO()
    figure.savefig(png, format="png", metadata={"Software": None})
    return png.getvalue()


def _first_words(axes: Axes, report: Report) -> None:
    _line(axes, report.steps, lambda step: step.ttft_p95_s, "95 of 100 within", BLUE)
    _line(axes, report.steps, lambda step: step.ttft_p50_s, "half of them within", LIGHT)
    axes.axhline(report.bounds.ttft_s, color=RED, linestyle="--", label=f"bound, {report.bounds.ttft_s:g} s")
    axes.set_title("First words: seconds")


def _speed(axes: Axes, report: Report) -> None:
    _line(axes, report.steps, lambda step: step.speed_p50, "the median user", BLUE)
    _line(axes, report.steps, lambda step: step.speed_p10, "9 of 10 have more", LIGHT)
    axes.axhline(report.bounds.speed, color=RED, linestyle="--", label=f"bound, {report.bounds.speed:g} tokens/s")
    axes.set_title("Speed of an answer: tokens/s")


def _tokens(axes: Axes, report: Report) -> None:
    _line(axes, report.steps, lambda step: step.tokens_per_s, "all users together", BLUE)
    axes.set_title("Throughput: tokens/s")


def _away(axes: Axes, report: Report) -> None:
    _line(axes, report.steps, lambda step: float(sum(step.refusals.values())), "refused", BLUE)
    _line(axes, report.steps, lambda step: float(sum(step.failures.values())), "failed", RED)
    axes.set_title("Refused and failed: in a step")
    axes.set_ylim(top=max([1.0, *(1.1 * (sum(s.refusals.values()) + sum(s.failures.values())) for s in report.steps)]))


def _line(axes: Axes, steps: Sequence[StepFigures], value: Value, label: str, color: str) -> None:
    """A dot for each step, and a line through the means of those with as many users."""
    values: dict[int, list[float]] = {}
    for step in steps:
        if (found := value(step)) is not None:
            values.setdefault(step.users, []).append(found)
    means = {users: fmean(values[users]) for users in sorted(values)}
    axes.plot(list(means), list(means.values()), "-", color=color, label=label)
    dots = [(users, found) for users in values for found in values[users]]
    axes.plot([users for users, _ in dots], [found for _, found in dots], "o", color=color, markersize=4)


def _finish(axes: Axes, report: Report) -> None:
    if report.knee.state is State.FOUND:
        axes.axvline(report.knee.users, color=GREY, linestyle=":", label=f"knee, {report.knee.users:.1f} users")
    if report.advice is not None:
        axes.axvline(report.advice.users, color=GREEN, linestyle=":", label=f"advised, {report.advice.users} users")
    axes.set_xlabel("users")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.grid(visible=True, color="#e4e4e4")
    axes.legend(fontsize=8, framealpha=0.9)
