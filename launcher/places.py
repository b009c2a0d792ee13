"""Where set-up keeps things."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
VENV_PYTHON = VENV / "bin" / "python"
# What every run of this checkout shares: pip's log and temporary files, converted models.
SHARED = ROOT / ".palaver"
MODELS = SHARED / "models"
# What belongs to one deployment: its data, secrets and settings.
STATE = Path(os.environ.get("PALAVER_STATE") or SHARED).resolve()
RUN_ENV = STATE / "run.env"
# How many steps each command announces; the first two are the virtual environment and the packages.
STEPS = {"run": 6, "test": 5, "check": 3, "soak": 4, "bench": 4, "loadtest": 4}


def private_folder(path: Path) -> Path:
    """Make the folder if it is not there."""
    path.mkdir(parents=True, exist_ok=True)
    return path


def write_private(path: Path, text: str) -> None:
    """Put `text` into a file that only its owner may read, at once and whole."""
    draft = path.with_name(path.name + ".new")
    draft.unlink(missing_ok=True)
    with open(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
        file.write(text)
    draft.rename(path)
