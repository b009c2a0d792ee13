"""Commands of manage.py that set-up needs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping

from launcher.places import ROOT
from launcher.problems import SetupProblem


def manage(*arguments: str, settings: Mapping[str, str]) -> str:
    """Run `manage.py` with these settings; returns its standard output. Raises `SetupProblem`."""
    ended = subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=ROOT,
        env={**os.environ, **settings},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        print(ended.stdout + ended.stderr)
        last = (ended.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise SetupProblem(f"manage.py {arguments[0]} failed: {last}", "The whole output is above.")
    return ended.stdout
