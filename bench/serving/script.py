"""The engine that costs nothing: when its tokens come, and what they say."""

from __future__ import annotations

from collections.abc import Mapping

FIRST_TOKEN_MS = 50.0
TOKENS_PER_S = 100.0
TOKENS = 16
TOKEN = " a"  # one token of the tokenizer, two characters
LONG_TOKENS_PER_S = 20.0
LONG_TOKENS = 4000
SLOTS = 1000


def replies() -> Mapping[str, str]:
    """Environment of a worker whose answers are short: 16 tokens, 10 ms apart."""
    return _environ(TOKENS_PER_S, TOKENS)


def long_streams() -> Mapping[str, str]:
    """Environment of a worker whose answers last as long as they may, at a reader's pace."""
    return _environ(LONG_TOKENS_PER_S, LONG_TOKENS)


def _environ(tokens_per_s: float, tokens: int) -> Mapping[str, str]:
    return {
        "SCRIPT_SLOTS": str(SLOTS),
        "SCRIPT_TOKENS_PER_S": str(tokens_per_s),
        "SCRIPT_FIRST_TOKEN_MS": str(FIRST_TOKEN_MS),
        "SCRIPT_TEXT": TOKEN * tokens,
        "SCRIPT_CONTEXT_WINDOW": str(2 * LONG_TOKENS),
        "LOG_LEVEL": "WARNING",
        "BACKGROUND_RUNS": "off",  # titles would count as answers
    }
