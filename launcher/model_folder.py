"""Whether a folder holds a model that can be served."""

from __future__ import annotations

import json
import struct
from pathlib import Path

from launcher.problems import SetupProblem

CURE = "Download the model again, or leave MODEL out to use the small one that comes along."


def check(folder: Path) -> None:
    """Raises `SetupProblem` naming the first thing that is missing or cut short."""
    for name in ("config.json", "tokenizer.json"):
        _check_json(folder / name)
    weights = sorted(folder.glob("*.safetensors"))
    if not weights:
        raise SetupProblem(f"the model folder {folder} has no *.safetensors file", CURE)
    for path in [*weights, *_named_by_index(folder)]:
        _check_weights(path)


def _check_json(path: Path) -> None:
    try:
        json.loads(path.read_bytes())
    except OSError as error:
        raise SetupProblem(f"the model folder {path.parent} has no {path.name}", CURE) from error
    except ValueError as error:
        raise SetupProblem(f"{path} is damaged", CURE) from error


def _named_by_index(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if not index.exists():
        return []
    _check_json(index)
    return [folder / name for name in sorted(set(json.loads(index.read_bytes()).get("weight_map", {}).values()))]


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
        raise SetupProblem(f"{path} is missing, damaged or cut short", CURE)
