"""make bench: the converted model, then what is measured."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys

from launcher import model
from launcher.places import ROOT, STEPS
from launcher.progress import Step

OF = STEPS["bench"]


def main() -> None:
    """Measure the cells of `WHAT`, without it all, beside the servers of `PEERS`; leaves by `SystemExit`.

    `ARGS` holds other options. Raises `SetupProblem`.
    """
    with Step(3, OF, "Getting the model") as step:
        chosen = model.obtain(os.environ.get("MODEL"), step)
    print(f"[4/{OF}] Measuring", flush=True)
    command = [sys.executable, "-m", "bench.serving", *arguments()]
    environ = os.environ | {"MODEL_PATH": str(chosen.path)}
    sys.exit(abs(subprocess.run(command, cwd=ROOT, env=environ, check=False).returncode))


def arguments() -> list[str]:
    """What the environment asks for, as the bench's command line."""
    what, peers, others = (shlex.split(os.environ.get(name, "")) for name in ("WHAT", "PEERS", "ARGS"))
    return [*what, *(["--peers", *peers] if peers else []), *others]
