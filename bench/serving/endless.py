"""A model whose answers end at their cap and nowhere else, so that whoever serves it does the same work."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MODEL_PATH = "MODEL_PATH"
NEVER_SAID = 3  # of the added tokens, one that no chat's answer has


@contextmanager
def endless_model(folder: Path) -> Iterator[Path]:
    """While the block lasts, MODEL_PATH names a copy in `folder` of the model that it named; the weights are linked."""
    before = os.environ[MODEL_PATH]
    os.environ[MODEL_PATH] = str(_copied(Path(before), folder / "endless"))
    try:
        yield folder / "endless"
    finally:
        os.environ[MODEL_PATH] = before


def _copied(source: Path, copy: Path) -> Path:
    copy.mkdir(exist_ok=True)
    for file in source.iterdir():
        if not (copy / file.name).exists():
            (copy / file.name).symlink_to(file.resolve())
    described = json.loads((source / "tokenizer.json").read_text("utf-8"))["added_tokens"]
    text = next(token["content"] for token in described if token["id"] == NEVER_SAID)
    for name, changes in {
        "config.json": {"eos_token_id": NEVER_SAID},
        "generation_config.json": {"eos_token_id": NEVER_SAID},
        "tokenizer_config.json": {"eos_token": text},
    }.items():
        _rewrite(copy / name, changes)
    return copy


def _rewrite(file: Path, changes: dict[str, object]) -> None:
    told = json.loads(file.read_text("utf-8")) if file.exists() else {}
    file.unlink(missing_ok=True)
    file.write_text(json.dumps({**told, **changes}))
