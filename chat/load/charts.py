"""Charts of the last hour: the geometry of their lines, and what they show in words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import floor, log10

from chat.load.history import HOUR_S, SAMPLE_S, Sample
from chat.load.picture import ModelLoad

WIDTH, HEIGHT = 360, 100
# Without samples for so long a line has a gap: nothing was known.
GAP_S = 3 * SAMPLE_S

# What a sample says, or None where it says nothing.
Value = Callable[[Sample], float | None]
Point = tuple[float, float]  # age in seconds, value


@dataclass(frozen=True, slots=True)
class Line:
    """One series: its path in the chart's own units, and what it was last and at most."""

    label: str
    path: str
    last: float | None
    most: float


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines on one scale, from 0 to `top`."""

    title: str
    unit: str
    top: float
    lines: Sequence[Line]


def charts(load: ModelLoad, samples: Sequence[Sample]) -> list[Chart]:
    """The charts of one model, as far as something is known for them."""
    slug = load.model.pk
    tokens = [("Output", _of_model(slug, "output")), ("Input", _of_model(slug, "input"))]
    kv = [("Mean", _percent(_of_model(slug, "kv")))]
    drawn = (
        _chart("Waiting runs", _by_tier(load, "waiting"), samples),
        _chart("Oldest wait", _by_tier(load, "oldest_s"), samples, unit=" s"),
        _chart("Slots in use", _by_tier(load, "in_hand"), samples, top=load.slots),
        _chart("Tokens a second", tokens, samples),
        _chart("KV cache in use", kv, samples, unit="%", top=100),
    )
    return [chart for chart in drawn if any(line.path for line in chart.lines)]


def _by_tier(load: ModelLoad, name: str) -> list[tuple[str, Value]]:
    return [(each.tier.name, _of_tier(load.model.pk, each.tier.pk, name)) for each in load.tiers]


def _of_tier(model: str, tier: str, name: str) -> Value:
    return lambda sample: sample.models.get(model, {}).get("tiers", {}).get(tier, {}).get(name)


def _of_model(model: str, name: str) -> Value:
    return lambda sample: sample.models.get(model, {}).get(name)


def _percent(value: Value) -> Value:
    def percent(sample: Sample) -> float | None:
        share = value(sample)
        return None if share is None else share * 100

    return percent


def _chart(
    title: str, series: Iterable[tuple[str, Value]], samples: Sequence[Sample], *, unit: str = "", top: float = 0
) -> Chart:
    """`top` is what the scale reaches at least."""
    found = [(label, list(_points(value, samples))) for label, value in series]
    most = max((height for _, points in found for _, height in points), default=0.0)
    scale = top if top >= max(most, 1) else _round_up(most)
    return Chart(title, unit, scale, [_line(label, points, scale) for label, points in found])


def _points(value: Value, samples: Sequence[Sample]) -> Iterator[Point]:
    for sample in samples:
        height = value(sample)
        if height is not None:
            yield sample.age_s, height


def _line(label: str, points: Sequence[Point], top: float) -> Line:
    path = "".join(_strokes(points, top))
    last = points[-1][1] if points and points[-1][0] <= GAP_S else None
    return Line(label, path, last, max((height for _, height in points), default=0.0))


def _strokes(points: Sequence[Point], top: float) -> Iterator[str]:
    """A path's commands; a sample that stands alone is a dot."""
    for number, (before, point) in enumerate(pairwise([(HOUR_S * 2.0, 0.0), *points])):
        is_broken = before[0] - point[0] > GAP_S
        place = f"{WIDTH * (1 - point[0] / HOUR_S):.1f} {HEIGHT * (1 - point[1] / top):.1f}"
        yield f"{'M' if is_broken or not number else 'L'}{place}{'h0' if is_broken else ''}"


def _round_up(most: float) -> float:
    """The next of 1, 2, 5, 10, 20 and so on: so that the scale seldom changes."""
    if most <= 1:
        return 1.0
    power = 10.0 ** floor(log10(most))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= most)
