"""make test: throw-away servers and the converted model, then pytest."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from contextlib import ExitStack

from launcher import model, servers
from launcher.places import ROOT, STEPS
from launcher.progress import Step
from launcher.settings_file import Secrets

OF = STEPS["test"]
SUMMARY_WITHIN_S = 4


def main() -> None:
    """Run pytest with what `ARGS` holds; leaves by `SystemExit` with its status. Raises `SetupProblem`."""
    with ExitStack() as stack:
        with Step(3, OF, "Getting the model") as step:
            chosen = model.obtain(os.environ.get("MODEL"), step)
        with Step(4, OF, "Starting throw-away PostgreSQL and Valkey"):
            started = stack.enter_context(servers.throw_away())
        print(f"[5/{OF}] Running the tests", flush=True)
        settings = {
            **started.urls,
            "MODEL_PATH": str(chosen.path),
            "SECRET_KEY": Secrets.new().secret_key,
            "DEBUG": "false",
            "HTTPS": "false",
            "PALAVER_STATE": str(started.folder),  # a running product's run.env is not for tests
        }
        sys.exit(_pytest(settings))


def _pytest(settings: dict[str, str]) -> int:
    running = subprocess.Popen(
        [sys.executable, "-m", "pytest", *shlex.split(os.environ.get("ARGS", ""))],
        cwd=ROOT,
        env={**os.environ, **settings},
    )
    try:
        return running.wait()
    except SystemExit:
        running.send_signal(signal.SIGINT)  # so that it can say how far it came
        try:
            running.wait(SUMMARY_WITHIN_S)
        except subprocess.TimeoutExpired:
            running.kill()
        raise
