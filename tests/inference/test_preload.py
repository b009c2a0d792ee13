"""A checkout with a blank in its path must not cost vLLM its OpenMP runtime."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from inference import preload


def test_a_path_with_a_blank_is_preloaded_through_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = preload._openmp_runtime()
    assert found is not None
    runtime = tmp_path / "with a blank" / found.name
    runtime.parent.mkdir()
    runtime.symlink_to(found)
    monkeypatch.setattr(preload, "_openmp_runtime", lambda: runtime)
    monkeypatch.delenv("LD_PRELOAD", raising=False)

    with preload.readable_openmp():
        maps = subprocess.run(["cat", "/proc/self/maps"], capture_output=True, text=True, check=True)

    assert not maps.stderr
    assert str(found.resolve()) in maps.stdout
    assert "LD_PRELOAD" not in os.environ


def test_an_ordinary_path_is_left_to_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preload, "_openmp_runtime", lambda: Path("/usr/lib/libgomp.so.1"))
    monkeypatch.delenv("LD_PRELOAD", raising=False)

    with preload.readable_openmp():
        assert "LD_PRELOAD" not in os.environ
