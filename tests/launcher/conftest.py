"""Launchers that do not outlive their test, and a checkout in which nothing is set up yet."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.launcher.launched import ROOT, Launched

Launch = Callable[..., Launched]


@pytest.fixture
def launch() -> Iterator[Launch]:
    """Start a launcher; whatever is left of it after the test is killed."""
    with ExitStack() as stack:

        def start(command: Sequence[str], environ: Mapping[str, str], folder: Path = ROOT) -> Launched:
            launched = Launched(command, environ, folder)
            stack.callback(launched.end)
            return launched

        yield start


@pytest.fixture
def bare_checkout(tmp_path: Path) -> Path:
    """A copy of what set-up needs, deep and with spaces in its path, nothing installed."""
    folder = tmp_path / "a folder with spaces" / ("deep" * 30) / "and a quote's end"
    for package in ("launcher", "inference"):
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("Makefile", "pyproject.toml", "LICENSE", *(path.name for path in ROOT.glob("requirements*.txt"))):
        shutil.copy(ROOT / name, folder)
    return folder


def pip_alone() -> dict[str, str]:
    """An environment that hides this machine's settings of pip."""
    hidden = {name: "" for name in os.environ if name.startswith("PIP_")}
    return hidden | {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_CACHE_DIR": "1", "no_proxy": "*"}


@pytest.fixture
def no_index() -> dict[str, str]:
    """An environment in which pip knows one package index, and nobody listens there."""
    return pip_alone() | {"PIP_INDEX_URL": "http://127.0.0.1:9/simple"}


@pytest.fixture
def silent_index() -> Iterator[dict[str, str]]:
    """An environment in which pip waits for a package index that accepts connections and says nothing."""
    with socket.socket() as index:
        index.bind(("127.0.0.1", 0))
        index.listen()
        yield pip_alone() | {"PIP_INDEX_URL": f"http://127.0.0.1:{index.getsockname()[1]}/simple"}
