"""The units, as systemd reads them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from django.conf import settings

from chatsite.serve import GRACE_S
from launcher.keeper import CHANGES_OVER
from tests.deploy.test_compose import ENDS_WITHIN_S
from tests.deploy.tools import DEPLOY

UNITS = DEPLOY / "systemd"
INSTANCES = {
    "palaver-web@.service": "palaver-web@8001.service",
    "palaver-worker@.service": "palaver-worker@gpu0.service",
}
PYTHON = "/opt/palaver/.venv/bin/python"


def values(unit: str, name: str) -> Sequence[str]:
    return re.findall(rf"^{name}=(.*)$", (UNITS / unit).read_text(), re.MULTILINE)


@pytest.fixture
def installed(tmp_path: Path) -> Sequence[Path]:
    """As on a machine where the product is in this checkout, under a path that has no space in it."""
    python = tmp_path / "python"
    python.symlink_to(sys.executable)
    made = []
    for unit in UNITS.glob("palaver*.*"):
        if unit.suffix in (".service", ".target"):
            made.append(tmp_path / INSTANCES.get(unit.name, unit.name))
            made[-1].write_text(unit.read_text().replace(PYTHON, str(python)))
    return made


def test_systemd_finds_nothing_to_mend(installed: Sequence[Path]) -> None:
    assert shutil.which("systemd-analyze"), "systemd-analyze is not here: apt-get install systemd"
    assert len(installed) == 5

    read = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *installed], capture_output=True, text=True, timeout=60, check=False
    )

    assert (read.returncode, read.stderr) == (0, "")


def test_who_stops_has_the_time_that_it_takes() -> None:
    environ = (UNITS / "palaver.env.example").read_text()
    drain_s = re.search(r"^DRAIN_S=(\d+)$", environ, re.MULTILINE)
    assert drain_s

    assert int(values("palaver-worker@.service", "TimeoutStopSec")[0]) > int(drain_s[1]) + ENDS_WITHIN_S
    assert int(values("palaver-web@.service", "TimeoutStopSec")[0]) > settings.WEB_DRAIN_S + GRACE_S + 5


def test_a_workers_engine_is_stopped_by_the_worker_and_the_worker_is_started_again() -> None:
    unit = "palaver-worker@.service"

    assert values(unit, "KillMode") == ["mixed"]
    assert values(unit, "Restart") == ["always"]
    assert values(unit, "RestartForceExitStatus") == values(unit, "SuccessExitStatus") == [str(CHANGES_OVER)]
    assert values(unit, "StartLimitIntervalSec") == ["0"]


def test_a_restart_returns_when_the_process_serves() -> None:
    assert "%i/readyz" in values("palaver-web@.service", "ExecStartPost")[0]
    assert "${READY_FILE}" in values("palaver-worker@.service", "ExecStartPost")[0]
