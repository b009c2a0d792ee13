"""make soak: the converted model, then users and faults over a world of its own."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys

from launcher import model
from launcher.places import ROOT, STEPS
from launcher.progress import Step

OF = STEPS["soak"]


def main() -> None:
    """Soak with what `ARGS` holds, without it for ten minutes; leaves by `SystemExit`. Raises `SetupProblem`."""
    with Step(3, OF, "Getting the model") as step:
        chosen = model.obtain(os.environ.get("MODEL"), step)
    print(f"[4/{OF}] Soaking", flush=True)
    command = [sys.executable, "-m", "tests.faults.soak", *shlex.split(os.environ.get("ARGS", ""))]
    environ = os.environ | {"MODEL_PATH": str(chosen.path)}
    sys.exit(abs(subprocess.run(command, cwd=ROOT, env=environ, check=False).returncode))
