"""Put a Palaver under a growing load, and write what it carries as a page, a picture and JSON.

make loadtest
make loadtest ARGS="--url https://chat.example.org --keys keys.txt"
python -m loadtest --compare FIRST/report.json SECOND/report.json
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

from launcher.install import hardware
from loadtest import keys, machine, page, plots, report
from loadtest.driving import Driving, LoadBroken
from loadtest.figures import StepFigures
from loadtest.options import EX_USAGE, BadOptions, Options, options_of, parsed
from loadtest.report import Report
from loadtest.target import Target, TargetProblem, deployed


def main(arguments: list[str] | None = None) -> None:
    """Leaves by `SystemExit`: 64 for options that cannot be, 1 for a test that could not be made."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it tells of its cache of fonts
    try:
        told = parsed(arguments)
        if told.compare:
            sys.exit(_compare(*told.compare))
        sys.exit(asyncio.run(_load_test(options_of(told, "gpu" if told.url else hardware()))))
    except BadOptions as problem:
        _end(str(problem).rstrip(".") + ".", EX_USAGE)
    except (TargetProblem, LoadBroken, report.NoReport) as problem:
        _end(str(problem), 1)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    except asyncio.CancelledError:
        sys.exit(128 + signal.SIGTERM)


def _end(why: str, status: int) -> None:
    """One line, and out."""
    sys.stderr.write(f"palaver: {' '.join(why.split())}\n")
    sys.exit(status)


def _compare(first: Path, second: Path) -> int:
    _say(report.compared(report.read(first), report.read(second)))
    return 0


async def _load_test(options: Options) -> int:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with _target(options) as target:
        driving = Driving()
        is_whole = False
        _say(f"{target.model} ({target.engine}), up to {options.most_users} users, {options.step_seconds:g} s a step")
        try:
            with tempfile.TemporaryDirectory(prefix="palaver-loadtest-") as folder:
                await driving.carry_out(options, target, Path(folder), _tell_step)
            is_whole = True
        finally:
            # Before the deployment is stopped: who interrupts waits for this only.
            _write(report.reported(options, target, driving.steps, machine.described(), is_whole=is_whole), options.out)
    return 0


@asynccontextmanager
async def _target(options: Options) -> AsyncIterator[Target]:
    """Raises `TargetProblem`."""
    if options.keys:
        yield await asyncio.to_thread(deployed, options, keys.read(options.keys))
        return
    # Only here: a deployment that runs is tested without what tests are made of.
    from loadtest import product
    from tests.stack.stack import StackBroken

    _say("starting a Palaver for the test")
    try:
        async with product.opened(options) as target:
            yield target
    except (StackBroken, TimeoutError) as problem:
        said = str(problem).splitlines() or ["in time"]
        raise TargetProblem(f"the Palaver for the test did not start: {said[0]}: {said[-1]}") from problem


def _tell_step(step: StepFigures) -> None:
    _say(report.step_in_words(step))


def _write(whole: Report, out: Path) -> None:
    """Nothing where there is no step to tell of."""
    if not whole.steps:
        _say("No step came to an end: there is no report.")
        return
    folder = _new_folder(out)
    (folder / "report.json").write_text(report.as_json(whole))
    png = plots.drawn(whole)
    (folder / "report.png").write_bytes(png)
    (folder / "report.html").write_text(page.page(whole, png))
    if whole.is_scripted:
        _say("The engine was scripted: no model answered.")
    _say(f"Knee: {report.knee_in_words(whole)}")
    _say(f"Advised capacity: {report.advice_in_words(whole)}")
    _say(f"The report: {folder / 'report.html'}, beside it report.png and report.json")


def _new_folder(out: Path) -> Path:
    folder = out / f"{datetime.now(UTC):%Y%m%d-%H%M%S}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _say(line: str) -> None:
    print(f"  {line}", flush=True)


if __name__ == "__main__":
    main()
