"""Readers whose connections are cut end with the stored message, exactly, also where streams live in a cluster."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import Callable

from tests.long_form import times
from tests.stack.cutting import Fate
from tests.stack.test_cuts import READERS_A_RUN, Place, cut_and_compare, place  # noqa: F401  (a fixture)

ROUNDS = times(3, long=40)


async def test_every_schedule_of_cuts_reproduces_the_stored_message(
    place: Place,  # noqa: F811
    figures: Callable[[str], None],
) -> None:
    seed = int(os.environ.get("CUTS_SEED", random.randrange(1 << 32)))
    figures(f"schedules of cuts in a cluster: CUTS_SEED={seed}")
    fates = [*Fate] * ROUNDS

    counts: Counter[str] = Counter()
    for counted in await asyncio.gather(
        *(cut_and_compare(place, fate, f"{seed}/{number}") for number, fate in enumerate(fates))
    ):
        counts += counted

    assert counts["after the end"] == len(fates) * READERS_A_RUN
    assert min(counts[key] for key in ("while live", "inside an event", "with the stream gone", Fate.DELETED_LIVE)) > 0
