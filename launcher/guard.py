"""Process A: outlives the runner (process B) and sees to it that nothing of B's is left behind.

    make ── A guard ── B runner ── pip, initdb, PostgreSQL, Valkey, honcho ── web, workers ── EngineCore

B runs the show and stops it in order. A only waits. Both adopt orphans, so that the tree below A is exact whatever
daemonises or rewrites its environment. A dies: the kernel signals B, which stops within its bound. B dies: its
children fall to A, which ends them. make dies: the kernel signals A.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType

from launcher import kernel

ROOT = Path(__file__).resolve().parent.parent
PARENT_PID = "PALAVER_PARENT_PID"  # set by the Makefile: who must be alive for us to start
GUARD_PID = "PALAVER_GUARD_PID"  # set for the runner, likewise
# A runner that has not stopped by itself this long after it was asked is not going to.
RUNNER_BOUND_S = 11
GRACE_S = 1.5


def main(argv: list[str]) -> int:
    """Run `argv` under a runner in a session of its own; returns the runner's exit status when all is gone."""
    kernel.adopt_orphans()
    kernel.signal_at_parent_death(signal.SIGTERM)
    if os.environ.pop(PARENT_PID, str(os.getppid())) != str(os.getppid()):
        return 128 + signal.SIGTERM  # make died before we could ask to be told
    stops: list[int] = []
    _pass_on_stops(stops)
    runner = _start_runner(argv)
    # Only now is there somebody to pass on to; a stop that came first is passed on here.
    _pass_on_stops(stops, runner)
    if stops:
        _stop(runner)
    status = runner.wait()
    for signum in _stop_signals():
        signal.signal(signum, signal.SIG_IGN)  # the end is near and bounded; it must be complete
    kernel.end_descendants(GRACE_S)
    return status if status >= 0 else 128 - status


def _start_runner(argv: list[str]) -> subprocess.Popen[bytes]:
    # Inside a virtual environment this is the Python it was made from, which can make ours anew.
    python = getattr(sys, "_base_executable", sys.executable)
    return subprocess.Popen(
        [python, "-m", "launcher.runner", *argv],
        cwd=ROOT,
        env={**_with_bytecode(os.environ), GUARD_PID: str(os.getpid())},
        start_new_session=True,  # Ctrl-C reaches B once, from us, and not a second time from the terminal
    )


def _with_bytecode(environ: Mapping[str, str]) -> dict[str, str]:
    """Where no bytecode may be written beside its source, as in many a container, it is kept with our other files.

    Without any, each process compiles all that it imports, at each start: the web tier takes 4 s for it in place of 1.
    """
    if not environ.get("PYTHONDONTWRITEBYTECODE"):
        return dict(environ)
    kept = {name: value for name, value in environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": environ.get("PYTHONPYCACHEPREFIX") or str(ROOT / ".palaver" / "pycache")}


def _stop_signals() -> list[int]:
    # nohup means: stay when the terminal goes.
    hangup = [] if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else [signal.SIGHUP]
    return [signal.SIGINT, signal.SIGTERM, *hangup]


def _pass_on_stops(stops: list[int], runner: subprocess.Popen[bytes] | None = None) -> None:
    def stop(signum: int, _frame: FrameType | None) -> None:
        stops.append(signum)
        if runner:
            _stop(runner, signal.SIGINT if signum == signal.SIGINT else signal.SIGTERM)

    for signum in _stop_signals():
        signal.signal(signum, stop)


def _stop(runner: subprocess.Popen[bytes], signum: int = signal.SIGTERM) -> None:
    signal.signal(signal.SIGALRM, lambda *_: runner.kill())
    if not signal.getitimer(signal.ITIMER_REAL)[0]:  # asking twice does not give it more time
        signal.alarm(RUNNER_BOUND_S)
    runner.send_signal(signum)
