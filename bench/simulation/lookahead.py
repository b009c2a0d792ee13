"""What the depth of the queues costs: slots that wait for a message, and users who wait behind what was let go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bench.simulation.cell import Setting
from bench.simulation.site import product_room
from bench.simulation.within import CROWD, Outcome, Trial, outcome

# The time from a claim to the next message in the queue decides how deep it must be.
CLAIM_S = 0.05
SETTINGS = (Setting(claim_s=CLAIM_S), Setting(workers=16, slots=32, claim_s=CLAIM_S))


@dataclass(frozen=True, slots=True)
class Found:
    """Of one depth."""

    in_use: float
    outcome: Outcome


def found(trial: Trial, url: str) -> Found:
    """Simulate it."""
    came = outcome(trial, product_room, url)
    slots = trial.setting.workers * trial.setting.slots
    return Found(came.output_tokens_per_s / (slots * trial.setting.pace.tokens_per_s), came)


def report(values: Sequence[int], url: str) -> None:
    """Print a line for each depth and size of cell."""
    for setting in SETTINGS:
        slots = setting.workers * setting.slots
        crowd = replace(CROWD, prompts_per_s=CROWD.prompts_per_s * slots / 12)
        concurrency = max(4, slots // 8)
        print(
            f"{setting.workers} workers of {setting.slots} slots, {crowd.users} users of {concurrency} live runs each"
        )
        for value in values:
            trial = Trial(120, crowd, concurrency, sample_s=1, setting=replace(setting, lookahead=value))
            came = found(trial, url)
            modest = trial.modest()
            print(
                f"  lookahead {value:3}: slots in use {came.in_use:.1%},"
                f" largest gap {came.outcome.gap_tokens:,.0f} tokens,"
                f" the modest wait {came.outcome.p95_wait_s(modest):.2f} s (p95)"
            )
