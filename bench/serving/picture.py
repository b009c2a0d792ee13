"""`python -m bench.serving.picture RESULTS.json > docs/stages.svg`: where the time to the first token goes, as bars."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

STAGE = "stage, one at a time, p50: "
BESIDE = "beside them: "
WIDTH, LABELS, ROW, BAR = 780, 310, 30, 18


@dataclass(frozen=True)
class Stage:
    """What lies between two moments of a request, in milliseconds."""

    what: str
    ms: float


def stages(results: dict[str, Any]) -> Sequence[Stage]:
    """Those that follow each other, in their order. Raises `KeyError` where nothing of the kind was measured."""
    named = [(line["what"].removeprefix(STAGE), line["ours"]) for line in results["cells"]["ttft"]]
    told = [line["what"].startswith(STAGE) for line in results["cells"]["ttft"]]
    return [
        Stage(what.partition(", ")[0], max(0.0, ms))
        for (what, ms), is_stage in zip(named, told, strict=True)
        if is_stage and ms is not None and not what.startswith(BESIDE)
    ]


def drawn(found: Sequence[Stage]) -> str:
    """An SVG that needs no style sheet: each bar begins where the one above it ends."""
    scale = (WIDTH - LABELS - 70) / max(1e-9, sum(stage.ms for stage in found))
    height = ROW * len(found) + 16
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" font-size="13"'
        ' font-family="system-ui, sans-serif">',
        "<title>From a question to its first word, stage by stage</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
    ]
    begins = 0.0
    for number, stage in enumerate(found):
        top, left = 8 + ROW * number, LABELS + begins * scale
        wide = max(1.0, stage.ms * scale)
        lines += [
            f'<text x="{LABELS - 10}" y="{top + 14}" text-anchor="end" fill="#222">{escape(stage.what)}</text>',
            f'<rect x="{left:.1f}" y="{top}" width="{wide:.1f}" height="{BAR}" fill="#3b6ea8"/>',
            f'<text x="{left + wide + 6:.1f}" y="{top + 14}" fill="#222">{stage.ms:.1f} ms</text>',
        ]
        begins += stage.ms
    return "\n".join([*lines, "</svg>", ""])


def main() -> None:
    """Draw."""
    sys.stdout.write(drawn(stages(json.loads(Path(sys.argv[1]).read_text()))))


if __name__ == "__main__":
    main()
