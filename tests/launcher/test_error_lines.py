"""Foreseen trouble is one line that names the cause and the cure, and a non-zero exit."""

from __future__ import annotations

import json
import os
import shutil
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from launcher import install, model_folder, pip
from launcher.options import Options
from launcher.problems import SetupProblem, told_in_one_line
from tests.launcher.conftest import Launch
from tests.launcher.launched import ROOT, free_port, launcher


def refused(launch: Launch, environ: dict[str, str], folder: Path = ROOT) -> str:
    """What `make run` says when it gives up; nothing of it may be left."""
    launched = launch(launcher("run"), environ, folder)
    launched.process.wait(120)
    launched.assert_gone(1)
    assert launched.process.returncode == 1
    assert "Traceback" not in launched.output
    return launched.wait_for("^palaver: .*").group()


def test_a_taken_port_is_named_before_anything_starts(launch: Launch, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        said = refused(launch, {"PORT": str(port), "PALAVER_STATE": str(tmp_path / "state")})

    assert f"port {port}" in said
    assert "PORT=" in said
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("damage", ["no config.json", "no tokenizer.json", "no weights", "cut short", "not JSON"])
def test_a_broken_model_folder_is_named(launch: Launch, tmp_path: Path, damage: str) -> None:
    folder = whole_model(tmp_path / "my model")
    if damage == "cut short":
        os.truncate(folder / "model.safetensors", 20)
    elif damage == "not JSON":
        (folder / "config.json").write_text("{")
    else:
        (folder / {"no weights": "model.safetensors"}.get(damage, damage.removeprefix("no "))).unlink()

    said = refused(launch, {"MODEL": str(folder), "PORT": str(free_port()), "PALAVER_STATE": str(tmp_path / "state")})

    assert str(folder) in said


def test_a_whole_model_folder_is_taken(tmp_path: Path) -> None:
    model_folder.check(whole_model(tmp_path / "my model"))


def whole_model(folder: Path) -> Path:
    """The smallest folder that passes for a model."""
    folder.mkdir()
    for name in ("config.json", "tokenizer.json"):
        (folder / name).write_text("{}")
    head = json.dumps({"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + bytes(16))
    return folder


def test_a_package_index_out_of_reach_is_told_without_a_traceback(
    launch: Launch, bare_checkout: Path, no_index: dict[str, str]
) -> None:
    said = refused(launch, no_index | {"PORT": str(free_port())}, bare_checkout)

    assert "package index cannot be reached" in said
    assert (bare_checkout / ".palaver/log/pip.log").exists()


def test_a_second_start_goes_on_with_the_environment_that_an_unreachable_index_left(
    launch: Launch, bare_checkout: Path, no_index: dict[str, str]
) -> None:
    environ = no_index | {"PORT": str(free_port())}
    refused(launch, environ, bare_checkout)
    (bare_checkout / ".venv" / "kept").touch()

    refused(launch, environ, bare_checkout)

    assert not (bare_checkout / ".venv" / install.UNFINISHED.name).exists()


def test_a_full_disk_is_told_before_packages_are_fetched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage._replace(free=1_200_000_000))

    with pytest.raises(SetupProblem, match=r"only 1\.2 GB are free"):
        install._check_disk("cpu")


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "disk is full"),
        ("WARNING: Retrying ... NewConnectionError\nERROR: No matching distribution found for x", "cannot be reached"),
        ("ERROR: No matching distribution found for torch==2.13.0+cpu", r"no torch==2\.13\.0\+cpu"),
        ("ERROR: ResolutionImpossible", "ResolutionImpossible"),
    ],
)
def test_what_pip_says_becomes_one_cause(said: str, cause: str) -> None:
    with pytest.raises(SetupProblem, match=cause):
        raise pip._problem(said)


def test_a_disk_that_fills_up_later_is_told_too(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left, told_in_one_line():
        Path("/dev/full").write_text("x")

    assert left.value.code == 1
    assert "palaver: the disk is full. " in capsys.readouterr().err


@pytest.mark.parametrize("version", [(3, 6, 15), (3, 10, 2)])
def test_an_old_python_is_told_which_one_to_use(version: tuple[int, int, int]) -> None:
    pretend = f"import runpy, sys; sys.version_info = {version}; runpy.run_module('launcher', run_name='__main__')"

    ended = subprocess.run([sys.executable, "-c", pretend], cwd=ROOT, capture_output=True, text=True, check=False)

    assert ended.returncode == 1
    assert ended.stderr.startswith(f"palaver: this is Python {'.'.join(map(str, version))} and Palaver needs 3.11")
    assert len(ended.stderr.splitlines()) == 1


@pytest.mark.parametrize(("name", "value"), [("PORT", "http"), ("PORT", "70000"), ("WORKERS", "0"), ("WORKERS", "-1")])
def test_a_number_that_makes_no_sense_is_named(name: str, value: str) -> None:
    with pytest.raises(SetupProblem, match=f"{name}={value}"):
        Options.read({name: value})
