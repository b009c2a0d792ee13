"""How long readers wait for the next word when their worker is killed.

    MODEL_PATH=.palaver/models/SmolLM2-135M-Instruct python -m bench.takeover [--kills 12]

A product of its own, servers included: two workers on the scripted engine (no model is loaded, its prefill takes no
time), default settings. While answers stream from both, one worker is killed with -9, each in turn; for each of its
answers the time counts from the kill to the next delta at the client. Add a real engine's prefill of prompt and text
so far.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import statistics
import time
from collections.abc import Sequence

from tests.faults.parts import Worker
from tests.faults.world import Plan, World, new_folder, remove, running
from tests.sse_client import Api, TimedReading

RUNS = 8
ENOUGH_CHARS = 20
SCRIPT = {"SCRIPT_SLOTS": "64", "SCRIPT_TOKENS_PER_S": "50", "SCRIPT_CHARS": "20000"}


async def waits(world: World, api: Api, victim: Worker) -> Sequence[float]:
    """Kill a worker; returns the seconds that each of its readers waited."""
    readings = [TimedReading() for _ in range(RUNS)]
    asked = [await api.ask(f"Go on and on, {number}.", max_output_tokens=2000) for number in range(RUNS)]
    reading = [asyncio.create_task(api.read(run["stream"], mine)) for run, mine in zip(asked, readings, strict=True)]
    while not all(len(mine.text) > ENOUGH_CHARS for mine in readings):  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    with world.database() as database:
        rows = database.execute("SELECT id::text, worker FROM chat_run WHERE status = 'streaming'").fetchall()
    its_own = {run_id for run_id, worker in rows if worker.startswith(f"{victim.name}@")}
    victim.send(signal.SIGKILL)
    killed_at = time.monotonic()
    orphans = [mine for run, mine in zip(asked, readings, strict=True) if run["run_id"] in its_own]
    while not all(2 in mine.began_at for mine in orphans):  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    for run in asked:
        await api.post(f"/api/runs/{run['run_id']}/cancel", {})
    await asyncio.gather(*reading)
    await victim.ready()
    return [mine.began_at[2] - killed_at for mine in orphans]


async def measured(kills: int) -> Sequence[float]:
    """All waits of so many kills."""
    folder = new_folder()
    try:
        async with running(Plan(webs=1, reapers=1, wishes=SCRIPT), folder) as world:
            [key] = world.users(1)
            api = Api(world.ports[0], key)
            found: list[float] = []
            for kill in range(kills):
                found += await waits(world, api, world.workers[kill % len(world.workers)])
                print(f"kill {kill + 1} of {kills}: {len(found)} answers so far", flush=True)
            return found
    finally:
        remove(folder)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Time from a worker's death to the next delta.")
    parser.add_argument("--kills", type=int, default=12)
    found = asyncio.run(measured(parser.parse_args().kills))
    print(f"{len(found)} answers of killed workers, the next word after")
    print(f"median {statistics.median(found):.1f} s, least {min(found):.1f} s, most {max(found):.1f} s")


if __name__ == "__main__":
    main()
