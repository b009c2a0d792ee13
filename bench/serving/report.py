"""The bench's table, and its file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from bench.serving.figures import Figure

NOTHING = ""
MISSED = "✗"


def table(figures: Sequence[Figure], peers: Sequence[str]) -> str:
    """Markdown that reads well as it stands; a missed bound is marked."""
    head = ["what", "unit", "bound", "ours", *peers, "the parts alone"]
    rows = [head, *(_row(figure, peers) for figure in figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    lines = [_line(row, widths) for row in rows]
    return "\n".join([lines[0], _line(["-" * width for width in widths], widths), *lines[1:]])


def _row(figure: Figure, peers: Sequence[str]) -> list[str]:
    bound = NOTHING if figure.bound is None else str(figure.bound)
    ours = _number(figure.ours) + (f" {MISSED}" if figure.is_met is False else NOTHING)
    others = [_number(figure.peers.get(peer)) for peer in peers]
    return [figure.what, figure.unit, bound, ours, *others, _number(figure.parts)]


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [
        text.ljust(width) if column < 2 else text.rjust(width)
        for column, (text, width) in enumerate(zip(row, widths, strict=True))
    ]
    return f"| {' | '.join(cells)} |"


def _number(value: float | None) -> str:
    """As many digits as it deserves: three that count, thousands apart."""
    if value is None:
        return NOTHING
    if abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def written(folder: Path, cells: Mapping[str, Sequence[Figure]], machine: Mapping[str, Any], at: datetime) -> Path:
    """Put everything that was measured into a file that bears the time; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{at:%Y%m%d-%H%M%S}.json"
    whole = {
        "at": at.isoformat(),
        "machine": dict(machine),
        "cells": {name: [_told(figure) for figure in figures] for name, figures in cells.items()},
    }
    path.write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n")
    return path


def _told(figure: Figure) -> Mapping[str, Any]:
    bound = None if figure.bound is None else str(figure.bound)
    return {**asdict(figure), "bound": bound, "is_met": figure.is_met}
