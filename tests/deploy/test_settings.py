"""What `deploy/` tells the product: that it reads it, and is content with it."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Mapping

import pytest

from inference.worker import _SETTINGS
from launcher.places import ROOT
from tests.deploy.test_compose import services
from tests.deploy.test_helm import environ_of, pod_of, rendered
from tests.deploy.tools import DEPLOY

# Of the shell that starts a worker, Python's and the engine's.
OTHERS = {
    *("WORKER_MODEL", "WORKER_NAME", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "PATH", "PIP_NO_CACHE_DIR"),
    *("PIP_DISABLE_PIP_VERSION_CHECK", "HF_HOME", "VLLM_CACHE_ROOT", "TRITON_CACHE_DIR", "VLLM_CPU_KVCACHE_SPACE"),
}
STORES = {
    "DATABASE_URL": "postgres://nobody@127.0.0.1/none",
    "BROKER_URL": "redis://127.0.0.1/0",
    "STREAMS_URL": "redis://127.0.0.1/1",
    "SECRET_KEY": "".join(chr(33 + n) for n in range(60)),
    "METRICS_TOKEN": "token",
}


def known() -> set[str]:
    """Every variable that the product reads."""
    read = re.findall(r'env\.\w+\("([A-Z_]+)"', (ROOT / "chatsite/settings.py").read_text())
    return {*read, *(name for name, _ in _SETTINGS.values()), "STREAMS_URL"}


def from_systemd() -> dict[str, str]:
    lines = (DEPLOY / "systemd/palaver.env.example").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def from_compose() -> dict[str, str]:
    environ: dict[str, str] = services()["worker"]["environment"]
    return environ


def from_helm() -> dict[str, str]:
    made = rendered()
    return {**made["ConfigMap", "p-settings"]["data"], **environ_of(pod_of(made, "p-worker-default"))}


def from_dockerfile() -> dict[str, str]:
    text = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")
    return {name: "" for line in re.findall(r"^ENV (.*)$", text, re.MULTILINE) for name in re.findall(r"(\w+)=", line)}


@pytest.mark.parametrize("given", [from_systemd, from_compose, from_helm, from_dockerfile])
def test_every_setting_is_one_that_is_read(given: object) -> None:
    assert callable(given)
    assert set(given()) <= known() | OTHERS


@pytest.mark.parametrize("given", [from_systemd, from_compose, from_helm])
def test_the_product_finds_its_settings_fit_for_the_world(given: object) -> None:
    assert callable(given)
    text = {name: value for name, value in given().items() if isinstance(value, str)}

    said = checked({**text, **STORES})

    assert "no issues" in said


def checked(environ: Mapping[str, str]) -> str:
    """What `manage.py check --deploy` says. Raises `AssertionError` when it warns."""
    ended = subprocess.run(
        [sys.executable, "manage.py", "check", "--deploy", "--fail-level", "WARNING"],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], **environ, "PALAVER_STATE": "/nowhere"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout + ended.stderr


def commands() -> set[str]:
    """Every `python …` of `deploy/`: a module, a command of manage.py, or a file."""
    text = "\n".join(
        path.read_text() for path in DEPLOY.rglob("*") if path.is_file() and path.suffix in (".service", ".yaml", "")
    )
    text = re.sub(r"[\[\],\"']", " ", text)
    called = re.findall(r"python +(-m +[\w.]+|manage\.py +\w+|deploy/\S+)", text)
    return {" ".join(each.split()) for each in called}


def test_every_command_is_there() -> None:
    found = commands()

    assert {"-m chatsite.serve", "-m inference.worker", "manage.py reaper", "manage.py migrate"} <= found
    for command in found - {"-m venv"}:
        kind, _, name = command.partition(" ")
        if kind == "-m":
            assert (ROOT / (name.replace(".", "/") + ".py")).exists(), command
        elif kind == "manage.py":
            own = ROOT / f"chat/management/commands/{name}.py"
            assert own.exists() or name in {"migrate", "collectstatic", "createsuperuser"}, command
        else:
            assert (ROOT / kind).exists(), command


def test_the_image_holds_what_the_product_imports() -> None:
    kept = {line[1:] for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines() if line.startswith("!")}

    imported: set[str] = set()
    for path in [*ROOT.glob("chat*/**/*.py"), *ROOT.glob("scheduler/**/*.py"), *ROOT.glob("inference/**/*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                imported.add(node.module.partition(".")[0])
    ours = {path.name for path in ROOT.iterdir() if (path / "__init__.py").exists()}
    assert imported & ours <= kept
    assert {"manage.py", "templates", "locale", "pyproject.toml"} <= kept
