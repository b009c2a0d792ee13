"""What is installed is not installed again."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from launcher import install, locks
from launcher.install import Wanted
from tests.launcher.conftest import Launch
from tests.launcher.launched import ROOT, launcher

SERVING = Wanted(python="3.11 at /here", hardware="cpu", serving="a", development=None)
EVERYTHING = replace(SERVING, development="d")


@pytest.mark.parametrize(
    ("wanted", "installed", "missing"),
    [
        (SERVING, None, True),
        (SERVING, SERVING, False),
        (SERVING, EVERYTHING, False),
        (EVERYTHING, SERVING, True),
        (replace(EVERYTHING, development="d2"), EVERYTHING, True),
        (replace(SERVING, serving="a2"), EVERYTHING, True),
        (replace(SERVING, hardware="gpu"), SERVING, True),
    ],
)
def test_only_what_is_missing_is_installed(wanted: Wanted, installed: Wanted | None, missing: bool) -> None:
    assert wanted.missing_from(installed) is missing


@pytest.mark.parametrize(
    ("wanted", "anew"),
    [
        (replace(SERVING, serving="a2"), False),
        (replace(SERVING, hardware="gpu"), True),
        (replace(SERVING, python="3.12 at /here"), True),
        (replace(SERVING, python="3.11 at /there"), True),
    ],
)
def test_another_python_engine_or_place_needs_a_new_environment(wanted: Wanted, anew: bool) -> None:
    assert wanted.needs_new_venv(SERVING) is anew


def test_this_environment_is_recognised_as_finished() -> None:
    assert not Wanted.now(dev=True).missing_from(install._installed())


def test_a_second_make_waits_and_says_so(launch: Launch, bare_checkout: Path) -> None:
    with locks.one_at_a_time(bare_checkout / ".palaver" / "install.lock", "testing"):
        second = launch(launcher("check"), {}, bare_checkout)
        second.wait_for("Another make is installing")
        assert not (bare_checkout / ".venv").exists()


def test_bytecode_is_kept_where_none_may_be_written_beside_the_sources(launch: Launch, bare_checkout: Path) -> None:
    environ = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPYCACHEPREFIX": ""}
    launched = launch(launcher("nonsense"), environ, bare_checkout)

    assert launched.ended() == 1
    assert list(bare_checkout.glob(".palaver/pycache/**/launcher/stopping.*.pyc"))
    assert not list(bare_checkout.glob("launcher/__pycache__"))


def test_every_pin_is_what_is_installed() -> None:
    names = ["requirements-base.txt", "requirements-dev.txt", "requirements-model.txt"]
    names.append(install.engine_file(install.hardware()))
    lines = [line.split("#")[0].strip() for name in names for line in (ROOT / name).read_text().splitlines()]
    pins = [Requirement(line) for line in lines if line and not line.startswith("-r")]

    assert len(pins) > 30
    for pin in pins:
        assert str(pin.specifier) == f"=={version(pin.name)}"


def test_an_environment_that_another_checkout_has_is_left_alone(tmp_path: Path) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    theirs.mkdir()
    (theirs / "pyvenv.cfg").touch()
    ours.symlink_to(theirs)

    install._remove(ours)

    assert not ours.is_symlink()
    assert (theirs / "pyvenv.cfg").exists()
