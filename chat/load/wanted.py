"""How many workers a model would need now: what an autoscaler follows."""

from __future__ import annotations

import math
from typing import Final

from chat.load.picture import ModelLoad, replies
from inference.reports import Seen

# Of the slots, those that may be taken while nobody waits: a question that comes then finds a free one, and another
# worker takes its time to load.
FULL: Final = 0.8


def wanted_workers(load: ModelLoad, wait_s: float) -> int:
    """Workers with which whoever waits has a slot within `wait_s`, and while nobody waits a fifth of the slots is free.

    ceil(max(taken / FULL, taken + waiting * min(1, held_s / wait_s)) / slots a worker). A slot is held for
    held_s = in hand / taken a second, by Little's law, over the last minute: within `wait_s` it serves wait_s / held_s
    of those who wait. A worker is taken to the part of its slots or that of its KV cache, whichever is the greater.

    Where no run was taken of late, a slot is asked for each that waits; where no worker tells its slots, one worker
    when any waits, and none otherwise. Weakness: while a surge begins, the minute's rate lags and held_s is too long.
    And what gathers while workers load is asked for on top of what they will hold: with a `wait_s` far below the time
    that loading takes, more come than are needed once they are there.
    """
    if not load.slots:
        return int(load.waiting > 0)
    taken = sum(_taken(seen) for seen in load.serving)
    for_waiting = load.waiting * min(1.0, _held_s(load) / wait_s)
    needed = max(taken / FULL, taken + for_waiting) * len(load.serving) / load.slots
    return math.ceil(round(needed, 6))  # 8 / 0.8 is a little more than 10, to a computer


def _taken(seen: Seen) -> float:
    in_hand = sum(part.in_hand for part in replies(seen.report).values())
    return max(in_hand, seen.report.engine.get("slots", 0) * seen.report.engine.get("kv_cache_usage", 0.0))


def _held_s(load: ModelLoad) -> float:
    taken_per_s = sum(each.taken_per_s for each in load.tiers)
    return load.in_hand / taken_per_s if taken_per_s else math.inf
