"""How often the tests try whose cases are drawn at random: for every change a short form, for a release a long one."""

from __future__ import annotations

import os


def times(short: int, long: int) -> int:
    """`long` with `LONG=1` in the environment, else `short`."""
    return long if os.environ.get("LONG") == "1" else short
