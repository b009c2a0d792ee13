"""Measure, print a table, and put all figures into a file.

make bench
make bench WHAT="ttft submit" PEERS=litellm
MODEL_PATH=.palaver/models/SmolLM2-135M-Instruct python -m bench.serving ttft sustain --seconds 20
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict
from datetime import UTC, datetime

import psutil

from bench.serving import report
from bench.serving.bench import Bench, LoadBroken, Options, Target
from bench.serving.beside import NotServing
from bench.serving.cells import CELLS
from bench.serving.cores import Cores, TooFewCores, staying_on
from bench.serving.figures import Figure
from bench.serving.peers import PEERS, PeerMissing, joined
from launcher.places import SHARED
from tests.faults.world import new_folder, remove
from tests.stack.stack import StackBroken

RESULTS = SHARED / "bench"
EX_USAGE = 64


def main() -> None:
    """Leaves by `SystemExit`: 1 where a cell could not be measured."""
    wanted = _parsed()
    try:
        cores = Cores.of_this_machine()
    except TooFewCores as problem:
        sys.exit(f"palaver: {problem}")
    staying_on(cores.load)()
    try:
        sys.exit(asyncio.run(_bench(wanted, cores)))
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    except asyncio.CancelledError:
        sys.exit(128 + signal.SIGTERM)


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.serving", description="How fast the product serves.")
    parser.add_argument("what", nargs="*", default=list(CELLS), metavar="what", help=f"of {', '.join(CELLS)}")
    parser.add_argument("--peers", nargs="*", default=[], help=f"servers measured in the same run: {', '.join(PEERS)}")
    parser.add_argument("--seconds", type=float, default=Options().seconds, help="that a rate must be sustained")
    parser.add_argument("--pairs", type=int, default=Options().pairs, help="of turns in the cell engine")
    wanted = parser.parse_args()
    _refuse_unknown("WHAT", wanted.what, CELLS)
    _refuse_unknown("PEERS", wanted.peers, PEERS)
    return wanted


def _refuse_unknown(of: str, names: Sequence[str], known: Mapping[str, object]) -> None:
    """One line, and out."""
    for name in names:
        if name not in known:
            sys.stderr.write(f"palaver: there is no {of}={name}. There are: {', '.join(known)}\n")
            sys.exit(EX_USAGE)


async def _bench(wanted: argparse.Namespace, cores: Cores) -> int:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    folder = new_folder()
    figures: dict[str, Sequence[Figure]] = {}
    try:
        async with AsyncExitStack() as stack:
            bench = Bench(Options(wanted.seconds, wanted.peers, wanted.pairs), cores, folder, stack)
            stack.push_async_callback(bench.close_site)
            bench.peers = await _peers(bench)
            for name in wanted.what:
                await _measure(bench, name, figures)
    finally:
        remove(folder)
        if figures:
            _tell(figures, bench)
    return int(len(figures) < len(set(wanted.what)))


async def _peers(bench: Bench) -> Mapping[str, Target]:
    found: dict[str, Target] = {}
    for name in bench.options.peers:
        try:
            found[name] = await joined(bench, name)
        except (PeerMissing, NotServing) as problem:
            bench.say(f"{name} is left out: {problem}")
    return found


async def _measure(bench: Bench, name: str, figures: dict[str, Sequence[Figure]]) -> None:
    """A cell that cannot be measured does not take the others with it."""
    print(f"{name}", flush=True)
    began_at = time.monotonic()
    try:
        figures[name] = await CELLS[name](bench)
    except (StackBroken, NotServing, LoadBroken, TimeoutError) as problem:
        bench.say(f"not measured: {type(problem).__name__} {problem}")
        await bench.close_site()
    bench.say(f"took {time.monotonic() - began_at:.0f} s")


def _tell(figures: dict[str, Sequence[Figure]], bench: Bench) -> None:
    worst = max((noise.others for noise in bench.noise), default=0.0)
    noise = [asdict(each) for each in bench.noise]
    machine = {"cores": os.cpu_count(), "memory_gb": round(psutil.virtual_memory().total / 1e9, 1), "noise": noise}
    path = report.written(RESULTS, figures, machine, datetime.now(UTC))
    lines = [figure for found in figures.values() for figure in found]
    peers = dict.fromkeys([*bench.peers, *(name for figure in lines for name in figure.peers)])
    print(report.table(lines, list(peers)))
    print(f"Others took up to {worst:.0%} of the server's core meanwhile. All figures: {path}", flush=True)


if __name__ == "__main__":
    main()
