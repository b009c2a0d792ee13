"""A minute of faults, the same kinds first each time and others as the dice have it, loses and doubles nothing."""

from __future__ import annotations

import os
import random
from collections.abc import Callable

import pytest

from tests.faults.soak import Soaking, say, soak
from tests.faults.world import new_folder, remove

SECONDS = 50
USERS = 8
FIRST = (
    "worker killed",
    "streams emptied",
    "web killed",
    "broker emptied",
    "worker paused past its leases",
    "reply to XADD lost",
    "postgres stopped at once",
    "worker stopped, and killed while it drains",
    "broker killed, its data lost",
    "reaper killed",
    "streams away",
)


@pytest.mark.timeout(600)
async def test_a_minute_of_faults_loses_nothing_and_doubles_nothing(figures: Callable[[str], None]) -> None:
    # Named to draw the same faults again: SOAK_SEED=7 make test ARGS=tests/faults/test_soak.py
    seed = int(os.environ.get("SOAK_SEED") or random.SystemRandom().randrange(1 << 32))
    say(f"\nSOAK_SEED={seed}")
    folder = new_folder()

    outcome = await soak(Soaking(seed, SECONDS, USERS, FIRST), folder)

    figures(outcome.table())
    assert not outcome.shortcomings, f"SOAK_SEED={seed}, logs in {folder}\n{outcome.table()}\n{outcome.evidence()}"
    remove(folder)
