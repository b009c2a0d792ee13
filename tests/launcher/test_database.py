"""launcher.database: what a start does not do again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from django.conf import LazySettings

from launcher.database import GATHERED, gather_static_files


@pytest.fixture
def source(settings: LazySettings, tmp_path: Path) -> Path:
    """The only static file there is."""
    folder = tmp_path / "source"
    folder.mkdir()
    settings.STATIC_ROOT = str(tmp_path / "gathered")
    settings.STATICFILES_DIRS = [folder]
    settings.STATICFILES_FINDERS = ["django.contrib.staticfiles.finders.FileSystemFinder"]
    file = folder / "page.css"
    file.write_text("a {}")
    return file


@pytest.fixture
def gathered(settings: LazySettings, source: Path) -> Path:
    """Where that file is after the first start."""
    gather_static_files()
    file = Path(settings.STATIC_ROOT) / source.name
    assert file.read_text() == "a {}"
    return file


def test_what_has_not_changed_is_not_gathered_again(gathered: Path) -> None:
    gathered.unlink()

    gather_static_files()

    assert not gathered.exists()


def test_what_has_changed_is(gathered: Path, source: Path) -> None:
    source.write_text("b {}")
    later_ns = gathered.stat().st_mtime_ns + 2_000_000_000
    os.utime(source, ns=(later_ns, later_ns))

    gather_static_files()

    assert gathered.read_text() == "b {}"


def test_a_gathering_that_was_cut_short_is_done_again(gathered: Path) -> None:
    (gathered.parent / GATHERED).unlink()
    gathered.unlink()

    gather_static_files()

    assert gathered.exists()
