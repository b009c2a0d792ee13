"""make check: everything that can be said without running the product, all of it even when something fails."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from launcher import servers
from launcher.places import ROOT, STEPS
from launcher.settings_file import Secrets

BIN = Path(sys.executable).parent


@dataclass(frozen=True)
class Check:
    """A command that must succeed, and a pattern of files without which there is nothing to check."""

    title: str
    command: Sequence[str]
    needs: str = "*"


def every_check() -> list[Check]:
    """In the order in which a reader wants to hear of trouble."""
    manage = [sys.executable, "-W", "error", "manage.py"]
    return [
        Check("format", [str(BIN / "ruff"), "format", "--check", "."]),
        Check("lint", [str(BIN / "ruff"), "check", "."]),
        Check("types", [str(BIN / "mypy"), "."]),
        Check("imports point down", [str(BIN / "lint-imports")]),
        Check("templates", [str(BIN / "djlint"), "--check", "templates"], needs="templates/**/*.html"),
        Check("migrations in step with models", [*manage, "makemigrations", "--check", "--dry-run"]),
        Check("migrations can be applied while serving", [sys.executable, "-m", "launcher.upgrades"]),
        Check("production settings", [*manage, "check", "--deploy", "--fail-level", "WARNING"]),
    ]


def main() -> None:
    """Run every check; leaves by `SystemExit`, non-zero when one failed. Raises `SetupProblem`."""
    with servers.throw_away() as started:
        print(f"[3/{STEPS['check']}] Checking", flush=True)
        environ = {**os.environ, **_production(), **started.urls, "PALAVER_STATE": str(started.folder)}
        failed = [check.title for check in every_check() if not _passes(check, environ)]
    print(f"\nFailed: {', '.join(failed)}" if failed else "\nAll checks passed.", flush=True)
    sys.exit(1 if failed else 0)


def _production() -> dict[str, str]:
    return {"SECRET_KEY": Secrets.new().secret_key, "DEBUG": "false", "HTTPS": "true", "ALLOWED_HOSTS": "example.org"}


def _passes(check: Check, environ: dict[str, str]) -> bool:
    print(f"\n== {check.title}", flush=True)
    if not any(ROOT.glob(check.needs)):
        print(f"There is no {check.needs}: nothing to check.", flush=True)
        return True
    return not subprocess.run(check.command, cwd=ROOT, env=environ, check=False).returncode
