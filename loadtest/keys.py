"""API keys in a file: one a line, `#` begins a remark."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path


class NoKeys(Exception):
    """There are none to be had; the text says why and what to do."""


def read(path: Path) -> list[str]:
    """Those in the file. Raises `NoKeys`."""
    if not path.name:
        raise NoKeys("no keys are given. Name a file that has an API key a line: --keys FILE, or PALAVER_KEYS=FILE.")
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise NoKeys(f"the file of keys {path} cannot be read: {reason}.") from error
    found = [word for line in lines if (word := line.partition("#")[0].strip())]
    if not found:
        raise NoKeys(f"the file of keys {path} has none. Put an API key into each line.")
    if any(not key.isascii() or len(key.split()) > 1 for key in found):
        raise NoKeys(f"the file of keys {path} has a line that is no key.")
    return found


def write(path: Path, keys: Sequence[str]) -> None:
    """For the user's own eyes."""
    with open(os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "w") as file:
        file.write("\n".join(keys) + "\n")
