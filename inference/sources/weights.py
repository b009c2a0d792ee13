"""Whether a folder holds a model that can be served. Standard library only: set-up asks too."""

from __future__ import annotations

import json
import struct
from pathlib import Path

from inference.sources.choice import Choice
from inference.sources.errors import NotFound, NotServable

CURE = "Bring the file anew."
INDEX = "model.safetensors.index.json"


def names_in(folder: Path) -> dict[str, int]:
    """Sizes of the files on the folder's top level, by name; links are followed. Raises `NotFound`."""
    try:
        return {path.name: path.stat().st_size for path in folder.iterdir() if path.is_file()}
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise NotFound(f"the model folder {folder} cannot be read ({reason})", "Check its path and owner.") from error


def check(folder: Path) -> None:
    """Raises `NotServable` naming the first file that is missing or cut short, `NotFound` without a folder."""
    names = names_in(folder)
    Choice.WHOLE.check(names, f"the model folder {folder}")
    for name in ("config.json", "tokenizer.json"):
        _read_json(folder / name)
    weights = sorted(name for name in names if name.endswith(".safetensors"))
    for name in [*weights, *_named_by_index(folder)]:
        _check_weights(folder / name)


def _read_json(path: Path) -> object:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise NotServable(f"{path} is damaged", CURE) from error


def _named_by_index(folder: Path) -> list[str]:
    if not (folder / INDEX).exists():
        return []
    index = _read_json(folder / INDEX)
    try:
        return sorted(set(index["weight_map"].values()))  # type: ignore[index]
    except (KeyError, TypeError, AttributeError) as error:
        raise NotServable(f"{folder / INDEX} is damaged", CURE) from error


def _check_weights(path: Path) -> None:
    """A safetensors file says in its head how long it is: 8 bytes of length, JSON, then the tensors."""
    try:
        with path.open("rb") as file:
            (head_bytes,) = struct.unpack("<Q", file.read(8))
            head = json.loads(file.read(min(head_bytes, 100_000_000)))
        ends = [entry["data_offsets"][1] for name, entry in head.items() if name != "__metadata__"]
        whole = path.stat().st_size == 8 + head_bytes + max(ends, default=0)
    except (OSError, struct.error, ValueError, KeyError, TypeError, AttributeError):
        whole = False
    if not whole:
        raise NotServable(f"{path} is missing, damaged or cut short", CURE)
