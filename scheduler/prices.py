"""What a run costs, in tokens."""

from __future__ import annotations


def cost(input_tokens: int, max_output_tokens: int) -> int:
    """The most that a run can be charged; reserved before it may wait."""
    return input_tokens + max_output_tokens


def charge(input_tokens: int, cached_tokens: int, output_tokens: int, cached_token_percent: int) -> int:
    """What a run is charged that a worker took; never more than its `cost`.

    input - cached + ceil(cached * percent / 100) + output, where the cached tokens are among those of the input.
    """
    return input_tokens - cached_tokens - (-cached_tokens * cached_token_percent // 100) + output_tokens
