"""make loadtest: the converted model, then users in growing numbers."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys

from launcher import model
from launcher.places import ROOT, STEPS
from launcher.progress import Step

OF = STEPS["loadtest"]
NEEDS_NO_MODEL = ("--url", "--compare", "--help", "-h")
REPORT_WITHIN_S = 6  # of the time that stopping may take in all


def main() -> None:
    """Test with what `ARGS` holds; leaves by `SystemExit`. Raises `SetupProblem`."""
    arguments = shlex.split(os.environ.get("ARGS", ""))
    environ = dict(os.environ)
    if not any(argument.startswith(NEEDS_NO_MODEL) for argument in arguments):
        with Step(3, OF, "Getting the model") as step:
            environ["MODEL_PATH"] = str(model.obtain(os.environ.get("MODEL"), step).path)
    print(f"[4/{OF}] Testing", flush=True)
    testing = subprocess.Popen([sys.executable, "-m", "loadtest", *arguments], cwd=ROOT, env=environ)
    try:
        sys.exit(abs(testing.wait()))
    except SystemExit:
        _let_it_report(testing)
        raise


def _let_it_report(testing: subprocess.Popen[bytes]) -> None:
    """Who stops a test still wants to know what it has found."""
    if testing.poll() is None:
        testing.send_signal(signal.SIGINT)
        try:
            testing.wait(REPORT_WITHIN_S)
        except subprocess.TimeoutExpired:
            testing.kill()
