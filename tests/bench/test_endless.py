"""The model whose answers end at their cap only."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from bench.serving.endless import MODEL_PATH, NEVER_SAID, endless_model
from inference.tokens import Tokenizer
from tests.real_model import model_folder


def test_its_end_is_a_token_that_no_answer_has_and_its_source_stays_as_it_was(tmp_path: Path) -> None:
    source = model_folder()
    before = {file.name: file.stat().st_mtime_ns for file in source.iterdir()}

    with endless_model(tmp_path) as copy:
        assert os.environ[MODEL_PATH] == str(copy)
        assert Tokenizer.load(copy).eos_ids == {NEVER_SAID}
        named = json.loads((copy / "tokenizer_config.json").read_text("utf-8"))["eos_token"]
        assert Tokenizer.load(copy).fingerprint == Tokenizer.load(source).fingerprint

    assert named != json.loads((source / "tokenizer_config.json").read_text("utf-8"))["eos_token"]
    assert os.environ[MODEL_PATH] == str(source)
    assert {file.name: file.stat().st_mtime_ns for file in source.iterdir()} == before


def test_the_environment_is_as_before_when_the_block_fails(tmp_path: Path) -> None:
    before = os.environ[MODEL_PATH]

    with pytest.raises(ZeroDivisionError), endless_model(tmp_path):
        raise ZeroDivisionError

    assert os.environ[MODEL_PATH] == before
