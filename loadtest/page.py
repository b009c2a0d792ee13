"""A report as one page that needs nothing from elsewhere."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

from loadtest.figures import StepFigures
from loadtest.report import DISTURBED, Report, advice_in_words, knee_in_words

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1c1c1c; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
img { max-width: 100%; height: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid #ddd; padding: .25rem .6rem; text-align: right; vertical-align: top; }
th[scope=row], td.text { text-align: left; }
.wide { overflow-x: auto; }
.answer { border-left: .3rem solid #2b5d9b; padding: .2rem 1rem; }
.warning { border-left: .3rem solid #b3372f; padding: .2rem 1rem; font-weight: 600; }
"""
TOLD_ABOVE = ("engine", "url")  # of the options
COLUMNS = (
    "users",
    "questions",
    "first words p50, s",
    "p95, s",
    "tokens/s each, median",
    "p10",
    "tokens/s in all",
    "refused",
    "failed",
    "cores taken by others",
)


def page(report: Report, png: bytes) -> str:
    """The whole document."""
    title = f"Load test of {report.model}, {report.at:%d %B %Y %H:%M} UTC"
    picture = f"data:image/png;base64,{b64encode(png).decode()}"
    alt = f"Time to the first words, speed, throughput and refusals by number of users. {knee_in_words(report)}"
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{escape(title)}</h1>",
            *(f'<p class="warning">{escape(warning)}</p>' for warning in _warnings(report)),
            f'<div class="answer"><p>Knee: <strong>{escape(knee_in_words(report))}</strong></p>',
            f"<p>Advised capacity: <strong>{escape(advice_in_words(report))}</strong></p></div>",
            f'<p><img src="{picture}" alt="{escape(alt)}"></p>',
            "<h2>Steps</h2>",
            _steps(report.steps),
            "<h2>By tier</h2>",
            _tiers(report.steps),
            "<h2>What was tested, and how</h2>",
            _pairs(_told(report)),
            "</body>\n</html>\n",
        ]
    )


def _warnings(report: Report) -> Iterable[str]:
    if report.is_scripted:
        yield "The engine was scripted: no model answered. These numbers say nothing of a real deployment."
    if not report.is_whole:
        yield "The test was stopped before its end: this is of the steps that were done."
    disturbed = [step.users for step in report.steps if step.others is not None and step.others > DISTURBED]
    if disturbed:
        steps = ", ".join(map(str, dict.fromkeys(disturbed)))
        yield f"Others took more than {DISTURBED:.0%} of the machine's cores in the steps of {steps} users."


def _steps(steps: Iterable[StepFigures]) -> str:
    rows = [
        [
            str(step.questions),
            _number(step.ttft_p50_s),
            _number(step.ttft_p95_s),
            _number(step.speed_p50),
            _number(step.speed_p10),
            _number(step.tokens_per_s),
            _named(step.refusals),
            _named(step.failures),
            "–" if step.others is None else f"{step.others:.0%}",
        ]
        for step in steps
    ]
    return _table(COLUMNS, zip([str(step.users) for step in steps], rows, strict=True))


def _tiers(steps: Iterable[StepFigures]) -> str:
    head = ("users", "tier", "questions", "first words p50, s", "p95, s", "tokens/s each, median")
    rows = [
        (
            str(step.users),
            [tier, str(own.questions), _number(own.ttft_p50_s), _number(own.ttft_p95_s), _number(own.speed_p50)],
        )
        for step in steps
        for tier, own in step.tiers.items()
    ]
    return _table(head, rows)


def _told(report: Report) -> Mapping[str, Any]:
    bounds = report.bounds
    asked_for = {name: value for name, value in report.options.items() if name not in TOLD_ABOVE and value is not None}
    return {
        "model": report.model,
        "engine": report.engine,
        "address": report.url,
        **report.machine,
        "bound of first words": f"95 of 100 within {bounds.ttft_s:g} s",
        "bound of speed": f"the median user has {bounds.speed:g} tokens/s or more",
        "limits": "; ".join(report.limits),
        **{name.replace("_", " "): value for name, value in asked_for.items()},
    }


def _pairs(told: Mapping[str, Any]) -> str:
    rows = [
        f'<tr><th scope="row">{escape(str(name))}</th><td class="text">{escape(_said(value))}</td></tr>'
        for name, value in told.items()
    ]
    return "\n".join(["<table>", *rows, "</table>"])


def _said(value: Any) -> str:
    return ", ".join(f"{name} {part}" for name, part in value.items()) if isinstance(value, Mapping) else str(value)


def _table(head: Iterable[str], rows: Iterable[tuple[str, list[str]]]) -> str:
    lines = [
        f'<tr><th scope="row">{escape(first)}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in cells)}</tr>'
        for first, cells in rows
    ]
    names = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    return "\n".join(
        [f'<div class="wide"><table>\n<thead><tr>{names}</tr></thead>\n<tbody>', *lines, "</tbody></table></div>"]
    )


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}" if value < 10 else f"{value:.1f}"


def _named(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items()) or "0"
