"""What others took of the cores is told for moments that were noted, and for no others."""

from __future__ import annotations

import os

import pytest

from loadtest.neighbours import Neighbours


def test_the_share_is_of_all_cores_between_two_moments() -> None:
    cores = os.cpu_count() or 1
    neighbours = Neighbours(at=[10.0, 12.0, 14.0, 16.0], others_s=[5.0, 5.0, 5.0 + cores, 5.0 + cores])

    assert neighbours.share(12.0, 14.0) == pytest.approx(0.5)
    assert neighbours.share(9.0, 17.0) == pytest.approx(1 / 6)
    assert neighbours.share(15.9, 30.0) is None
    assert neighbours.share(0.0, 1.0) is None
