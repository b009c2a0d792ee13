"""What is measured of one answer, from its POST to the last event of its stream."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

Clock = Callable[[], float]
LAST = ("done", "cancelled", "failed")
CUT = "stream_cut"


@dataclass
class Answer:
    """One question and what came of it so far; moments in seconds of one clock."""

    tier: str
    sent_at: float
    delta_at: list[float] = field(default_factory=list)
    tokens: int | None = None  # of the whole answer, once it has ended
    ended_at: float | None = None
    failure: str = ""

    @property
    def first_at(self) -> float | None:
        """When its first words came."""
        return self.delta_at[0] if self.delta_at else None

    @property
    def ttft_s(self) -> float | None:
        """From the POST to the first words."""
        return None if self.first_at is None else self.first_at - self.sent_at


def follow(answer: Answer, lines: Iterable[bytes], clock: Clock) -> None:
    """Note in `answer` what an event stream's lines bring, until its last event. They may end in mid-event."""
    kind, data = "message", ""
    for line in lines:
        text = line.decode(errors="replace").rstrip("\r\n")
        name, _, value = text.partition(":")
        if name == "event":
            kind = value.removeprefix(" ")
        elif name == "data":
            data += value.removeprefix(" ")
        elif not text:
            if _took(answer, kind, data, clock()):
                return
            kind, data = "message", ""
    fail(answer, CUT, clock())


def fail(answer: Answer, why: str, at: float) -> None:
    """Its end, and the name of what went wrong."""
    answer.failure = why
    answer.ended_at = at


def _took(answer: Answer, kind: str, data: str, at: float) -> bool:
    """Whether that was the last event."""
    if kind == "delta" and _object(data).get("text"):
        answer.delta_at.append(at)
    if kind not in LAST:
        return False
    told = _object(data)
    answer.ended_at = at
    answer.failure = "" if kind == "done" else str(told.get("code") or kind)
    answer.tokens = int(told.get("usage", {}).get("output_tokens", 0))
    return True


def _object(data: str) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
