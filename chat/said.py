"""What a model said, without what it thought."""

from __future__ import annotations

THOUGHTS, THOUGHT = "<think>", "</think>"


def said(text: str) -> str:
    """Behind its thoughts, where it wrote them down; empty where it came to no end of them."""
    _, thought, rest = text.rpartition(THOUGHT)
    if thought:
        return rest.strip()
    return "" if text.lstrip().startswith(THOUGHTS) else text.strip()
