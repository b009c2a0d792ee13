"""`python -m tests.faults.skewed SECONDS MODULE ...`: run a module on a machine whose clock is so far ahead.

Only what tells the time of day: durations are measured with other clocks, which no operator can set wrong.
"""

from __future__ import annotations

import datetime
import runpy
import sys
import time
from typing import Any

_true_datetime = datetime.datetime


class _AnyDatetime(type):
    """Those that C code makes are as good as ours."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _true_datetime)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, _true_datetime)


def main() -> None:
    """Set the clocks, then become the module."""
    _, seconds, module, *arguments = sys.argv
    set_clocks(float(seconds))
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def set_clocks(ahead_s: float) -> None:
    """From here on, this process takes the present to be `ahead_s` later than it is."""
    true_time, true_time_ns = time.time, time.time_ns
    ahead = datetime.timedelta(seconds=ahead_s)

    class Skewed(_true_datetime, metaclass=_AnyDatetime):
        """A datetime class whose present is another."""

        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Any:
            return _true_datetime.now(tz) + ahead

        @classmethod
        def utcnow(cls) -> Any:
            return cls.now(datetime.UTC).replace(tzinfo=None)

        @classmethod
        def today(cls) -> Any:
            return cls.now()

    time.time = lambda: true_time() + ahead_s
    time.time_ns = lambda: true_time_ns() + int(ahead_s * 1e9)
    datetime.datetime = Skewed  # type: ignore[misc]


if __name__ == "__main__":
    main()
