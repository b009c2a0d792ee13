"""Server-sent events as OpenAI's clients read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chat.streaming import frames
from chat.streaming.frames import Told


def framed(data: Mapping[str, Any], name: str = "") -> bytes:
    """One event; those of completions have no name."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {frames.JSON.encode(data)}\n\n".encode()


def waiting(told: Told) -> bytes:
    """A run's place in its queue: a comment, since there is no event for that."""
    said = (f"{name}={told.data[name]}" for name in ("position", "eta_s") if told.data[name] is not None)
    return frames.comment(" ".join(["queued", *said]))
