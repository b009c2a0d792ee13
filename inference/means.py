"""What was measured of late."""

from __future__ import annotations

# About so many measurements make up the mean.
REMEMBERED = 32


class Ratio:
    """One sum by another, of measurements that count less the older they are."""

    def __init__(self) -> None:
        self._amount = self._count = 0.0

    @property
    def value(self) -> float:
        """0 until something was measured."""
        return self._amount / self._count if self._count else 0.0

    def add(self, amount: float, count: float) -> None:
        """So much, of so many."""
        kept = 1 - 1 / REMEMBERED
        self._amount, self._count = self._amount * kept + amount, self._count * kept + count
