"""run.env: what the web tier, the workers and manage.py in another terminal need to find each other."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from launcher.places import RUN_ENV, STATE, private_folder, write_private
from launcher.problems import SetupProblem

SECRETS = STATE / "secrets.json"


@dataclass(frozen=True)
class Secrets:
    """Made once, kept across starts."""

    secret_key: str
    postgres_password: str
    valkey_password: str

    @classmethod
    def new(cls) -> Secrets:
        """Random ones, safe in a URL."""
        return cls(secrets.token_urlsafe(64), secrets.token_urlsafe(24), secrets.token_urlsafe(24))

    @classmethod
    def kept(cls, path: Path = SECRETS) -> Secrets:
        """Those of this deployment. Raises `SetupProblem` when the file is damaged."""
        private_folder(path.parent)
        if not path.exists():
            write_private(path, json.dumps(cls.new().__dict__, indent=1))
        try:
            return cls(**json.loads(path.read_text()))
        except (ValueError, TypeError) as error:
            raise SetupProblem(
                f"{path} is damaged", "Restore it, or remove its folder to begin with an empty database."
            ) from error


def write(settings: Mapping[str, str]) -> None:
    """Replace run.env."""
    lines = [f"{name}={_quoted(value)}\n" for name, value in sorted(settings.items())]
    write_private(RUN_ENV, "# Written by make run at every start.\n" + "".join(lines))


def _quoted(value: str) -> str:
    return f"'{value}'" if "'" not in value else '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
