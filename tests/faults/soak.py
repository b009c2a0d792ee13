"""`python -m tests.faults.soak --minutes 10 [--seed N]`: users, faults, and a checker over all that was seen."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.faults import faults, purses
from tests.faults.checker import violations
from tests.faults.collecting import collected
from tests.faults.crowd import Crowd
from tests.faults.parts import Death
from tests.faults.records import Bounds
from tests.faults.report import Outcome
from tests.faults.world import Plan, World, new_folder, remove, running

USERS = 14
WISHES = {
    "SCRIPT_SLOTS": "12",
    "SCRIPT_TOKENS_PER_S": "50",
    "ENGINE_SILENCE_S": "10",
    # No web process is ever stopped between what it reserves and what it stores: there is nobody to be patient with.
    "UNBORN_S": "20",
}
SAY_EVERY_S = 5.0
RUNS_A_MINUTE = 30
DRAIN_WITHIN_S = 150.0
EX_FAILURE = 1  # how a worker ends whose engine is dead or silent


@dataclass(frozen=True)
class Soaking:
    """How long, with which dice, and which faults are sure to be among the first."""

    seed: int
    seconds: float
    users: int = USERS
    first: Sequence[str] = ()
    has_faults: bool = True
    least_runs: int = 0


async def soak(soaking: Soaking, folder: Path) -> Outcome:
    """Let users and faults loose on a world, and check what came of it."""
    async with running(Plan(wishes=WISHES), folder) as world:
        keys = await asyncio.to_thread(world.users, soaking.users)
        await asyncio.to_thread(purses.allot, world, keys)
        crowd = Crowd(world.ports, keys, soaking.seed)
        began_at = time.monotonic()
        living = asyncio.create_task(crowd.run())
        reporting = asyncio.create_task(_report(world, crowd, began_at))
        try:
            struck = await _strike(world, soaking, living)
            crowd.close()
            await world.whole()
            await _finish(living)
            records = await collected(world, crowd.seen, Bounds())
        finally:
            reporting.cancel()
            living.cancel()
            await asyncio.wait({reporting, living})
        return Outcome(
            seed=soaking.seed,
            seconds=time.monotonic() - began_at,
            records=records,
            violations=violations(records),
            faults=struck.counts + crowd.seen.stops,
            strange_deaths=[_told(death, began_at) for death in world.deaths if _is_strange(death, world)],
            least_runs=soaking.least_runs,
            broken=struck.broken,
        )


async def _strike(world: World, soaking: Soaking, living: asyncio.Task[None]) -> faults.Struck:
    """Let faults strike for the time; or nothing at all."""
    if soaking.has_faults:
        return await faults.strike(world, faults.schedule(soaking.seed, soaking.seconds, soaking.first), living, say)
    await asyncio.wait({living}, timeout=soaking.seconds)
    return faults.Struck(Counter(), [])


def say(line: str) -> None:
    """To whoever watches."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def _finish(living: asyncio.Task[None]) -> None:
    """Let everybody read to the end; whoever has not met it by then gives up."""
    await asyncio.wait({living}, timeout=DRAIN_WITHIN_S)
    living.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await living


async def _report(world: World, crowd: Crowd, began_at: float) -> None:
    while True:
        await asyncio.sleep(SAY_EVERY_S)
        seen = crowd.seen
        up = " ".join(part.name for part in world.parts if not part.is_ready)
        say(
            f"{time.monotonic() - began_at:5.0f} s  asked {len(seen.asked)}  live {len(seen.reading_now)}  "
            f"read to the end {len(seen.reads)}  requests {len(seen.requests)}  away: {up or 'nobody'}"
        )


def _is_strange(death: Death, world: World) -> bool:
    """Nobody did it, and it was at work: one that cannot start while a server is away is started again."""
    is_of_engine = world.engines_break and death.status == EX_FAILURE
    return death.was_ready and not (death.is_ours or is_of_engine)


def _told(death: Death, began_at: float) -> str:
    return f"{death.name} ended by itself at {death.at_s - began_at:.0f} s with status {death.status}"


def main() -> None:
    """Leaves by `SystemExit`: 1 where something was lost, doubled, or too few were served."""
    options = _parsed()
    soaking = Soaking(
        options.seed,
        options.minutes * 60,
        options.users,
        has_faults=not options.calm,
        least_runs=int(options.minutes * RUNS_A_MINUTE),
    )
    say(f"seed {soaking.seed}")
    folder = new_folder()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that nothing outlives us
    outcome = asyncio.run(soak(soaking, folder))
    say(outcome.table())
    say(f"the run of the longest pause:\n{outcome.course_of_slowest()}")
    if outcome.shortcomings:
        say(outcome.evidence())
        say("\n".join([*outcome.shortcomings, f"Replay: --seed {soaking.seed}. Logs and data: {folder}"]))
        sys.exit(1)
    remove(folder)


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.soak")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--users", type=int, default=USERS)
    parser.add_argument("--calm", action="store_true", help="without faults")
    return parser.parse_args()


if __name__ == "__main__":
    main()
