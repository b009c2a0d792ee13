"""The picture of the stages: those that follow each other, each beginning where the last one ended."""

from __future__ import annotations

import re

from bench.serving.figures import Figure
from bench.serving.picture import BESIDE, STAGE, Stage, drawn, stages


def test_what_lies_beside_the_stages_is_left_out() -> None:
    lines = [
        Figure("TTFT added", "ms", 20.0),
        Figure(f"{STAGE}first, without the engine's", "ms", 3.0),
        Figure(f"{STAGE}second", "ms", 1.0),
        Figure(f"{STAGE}{BESIDE}third", "ms", 9.0),
    ]

    found = stages({"cells": {"ttft": [{"what": line.what, "ours": line.ours} for line in lines]}})

    assert found == [Stage("first", 3.0), Stage("second", 1.0)]


def test_each_bar_begins_where_the_one_before_ends() -> None:
    picture = drawn([Stage("first & last", 3.0), Stage("second", 1.0)])

    bars = [
        (float(left), float(wide)) for left, wide in re.findall(r'<rect x="([\d.]+)" y="\d+" width="([\d.]+)"', picture)
    ]
    assert bars[0][0] + bars[0][1] == bars[1][0]
    assert "first &amp; last" in picture
