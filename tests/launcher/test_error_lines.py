"""Foreseen trouble is one line that names the cause and the cure, and a non-zero exit."""

from __future__ import annotations

import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from launcher import install, model_folder, pip
from launcher.child import free_port
from launcher.options import Options
from launcher.problems import SetupProblem, told_in_one_line
from tests.launcher.conftest import Launch
from tests.launcher.launched import ROOT, launcher, wait_until


def refused(launch: Launch, environ: dict[str, str], folder: Path = ROOT) -> str:
    """What `make run` says when it gives up; nothing of it may be left."""
    launched = launch(launcher("run"), environ, folder)
    status = launched.ended()
    launched.assert_gone(1)
    assert "Traceback" not in launched.output
    said = [line for line in launched.output.splitlines() if line.startswith("palaver: ")]
    assert (status, len(said)) == (1, 1), launched.output
    return said[0]


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


def test_a_package_index_out_of_reach_is_told_and_what_is_made_is_kept(
    launch: Launch, bare_checkout: Path, no_index: dict[str, str]
) -> None:
    environ = no_index | {"PORT": str(free_port())}

    said = refused(launch, environ, bare_checkout)

    assert "package index cannot be reached" in said
    assert (bare_checkout / ".palaver/log/pip.log").exists()
    (bare_checkout / ".venv/kept").touch()
    refused(launch, environ, bare_checkout)
    assert (bare_checkout / ".venv/kept").exists()


def test_an_environment_whose_installation_was_cut_short_is_made_anew(
    launch: Launch, bare_checkout: Path, silent_index: dict[str, str]
) -> None:
    environ = silent_index | {"PORT": str(free_port())}
    large = wheel_of_many_files(bare_checkout)
    (bare_checkout / "requirements-model.txt").write_text(f"./{large.name}\n")
    cut_short = launch(launcher("run"), environ, bare_checkout)
    wait_until(lambda: pip.was_cut_short(bare_checkout / ".venv"), within_s=60)
    cut_short.runner.kill()
    cut_short.assert_gone(10)
    (bare_checkout / ".venv/left over").touch()

    again = launch(launcher("run"), environ, bare_checkout)

    again.wait_for_process("pip .*install")
    assert not (bare_checkout / ".venv/left over").exists()


def wheel_of_many_files(folder: Path) -> Path:
    """A package that takes pip seconds to unpack."""
    path = folder / "large-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for number in range(20_000):
            wheel.writestr(f"large/file{number}.txt", "")
        wheel.writestr("large-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: large\nVersion: 1\n")
        wheel.writestr("large-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("large-1.dist-info/RECORD", "")
    return path


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
