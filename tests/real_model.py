"""Where the tests find the model."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def model_folder() -> Path:
    """The folder in MODEL_PATH: config.json, tokenizer and weights. Without one the tests fail, they do not skip."""
    path = os.environ.get("MODEL_PATH")
    if not path or not (Path(path) / "tokenizer.json").exists():
        pytest.fail("MODEL_PATH must name the folder of a model (`make test` sets it)")
    return Path(path)
