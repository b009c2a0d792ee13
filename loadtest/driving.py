"""Locust in a process of its own: gevent rewrites what it is imported into, and that shall be nothing of ours."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from launcher import kernel
from launcher.places import ROOT
from loadtest import keys
from loadtest.figures import StepFigures
from loadtest.neighbours import Neighbours, watched
from loadtest.options import Options
from loadtest.plan import PLAN, Plan
from loadtest.target import Target

LOOK_EVERY_S = 0.3
STOP_WITHIN_S = 2.0
Told = Callable[[StepFigures], None]


class LoadBroken(Exception):
    """Locust has ended by itself before its time; the text says how."""


@dataclass
class Driving:
    """A test under way: its steps so far."""

    steps: list[StepFigures] = field(default_factory=list)

    async def carry_out(self, options: Options, target: Target, folder: Path, told: Told) -> None:
        """Go through all steps; `told` hears of each. Raises `LoadBroken`."""
        figures = folder / "steps.jsonl"
        figures.touch()
        plan = Plan(options.step_users, options.step_seconds, options.most_users, options.bounds, str(figures))
        plan.write(folder / "plan.json")
        keys.write(folder / "keys", target.keys)
        async with _locust(options, target, folder) as process, watched() as neighbours:
            ended = asyncio.create_task(process.wait())
            while process.returncode is None:
                await asyncio.wait({ended}, timeout=LOOK_EVERY_S)
                self._take(figures, neighbours if target.is_ours else None, told)
        if process.returncode:
            raise LoadBroken(f"Locust ended with {process.returncode}: {_tail(folder / 'locust.log')}")

    def _take(self, figures: Path, neighbours: Neighbours | None, told: Told) -> None:
        """Steps that have ended since the last look."""
        for line in figures.read_text().split("\n")[len(self.steps) : -1]:
            step = StepFigures.from_json(json.loads(line))
            if neighbours:
                step = replace(step, others=neighbours.share(step.began_at, step.began_at + step.seconds))
            self.steps.append(step)
            told(step)


@asynccontextmanager
async def _locust(options: Options, target: Target, folder: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """It, until it ends or the block does."""
    environ = {**os.environ, PLAN: str(folder / "plan.json"), "PYTHONPATH": str(ROOT)}
    with (folder / "locust.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *_command(options, target, folder),
            cwd=folder,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for us, who then write the report
            preexec_fn=lambda: kernel.signal_at_parent_death(signal.SIGTERM),
        )
    try:
        yield process
    finally:
        await _stop(process)


def _command(options: Options, target: Target, folder: Path) -> Sequence[str]:
    behaviour = options.behaviour
    return [
        *(sys.executable, "-m", "locust", "-f", str(ROOT / "loadtest" / "locustfile.py")),
        *("--headless", "--only-summary", "--loglevel", "WARNING", "--exit-code-on-error", "0"),
        *("--host", target.url, "--keys", str(folder / "keys")),
        *("--think-seconds", str(behaviour.think_s), "--turns", str(behaviour.turns)),
        *("--answer-tokens", str(behaviour.answer_tokens), "--chat-seed", str(behaviour.seed)),
    ]


async def _stop(process: asyncio.subprocess.Process) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is None:
            process.send_signal(number)
            try:
                async with asyncio.timeout(STOP_WITHIN_S):
                    await process.wait()
            except TimeoutError:
                continue


def _tail(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"
