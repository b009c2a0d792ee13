"""Which model is served, and getting it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from launcher import model_folder
from launcher.locks import one_at_a_time
from launcher.places import MODELS, ROOT, private_folder
from launcher.problems import SetupProblem
from launcher.progress import Step

DEFAULT = "SmolLM2-135M-Instruct"
HUB_ID = re.compile(r"[A-Za-z0-9][\w.\-]*/[\w.\-]+")


@dataclass(frozen=True)
class Model:
    """A model that can be served: its name in the product and its folder."""

    name: str
    path: Path


def obtain(wanted: str | None, step: Step) -> Model:
    """The model that `MODEL=` names, else the default one. Raises `SetupProblem`."""
    if wanted is None:
        return _made(DEFAULT, MODELS / DEFAULT, ["convert"], step)
    check_named(wanted)
    folder = Path(wanted).expanduser()
    if folder.is_dir():
        return Model(_name(folder.resolve().name), folder.resolve())
    return _made(_name(wanted.rpartition("/")[2]), MODELS / wanted.replace("/", "--"), ["fetch", wanted], step)


def check_named(wanted: str) -> None:
    """Raises `SetupProblem` when `MODEL=` names neither a whole model folder nor a hub id."""
    folder = Path(wanted).expanduser()
    if folder.is_dir():
        model_folder.check(folder)
    elif not HUB_ID.fullmatch(wanted):
        raise SetupProblem(
            f"MODEL={wanted} is neither a folder nor a hub id",
            "Give the path of a folder, or an id like Qwen/Qwen3-0.6B.",
        )


def _name(text: str) -> str:
    """A name that can stand in queue names and addresses."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", text)


def _made(name: str, folder: Path, how: list[str], step: Step) -> Model:
    with one_at_a_time(MODELS / "lock", "preparing a model"):
        try:
            model_folder.check(folder)
        except SetupProblem:
            _make(folder, how, step)
            model_folder.check(folder)
    return Model(name, folder)


def _make(folder: Path, how: list[str], step: Step) -> None:
    log = private_folder(MODELS.parent / "log") / "model.log"
    with log.open("wb") as out:
        making = subprocess.Popen(
            [sys.executable, "-m", "launcher.default_model", *how, str(folder)],
            cwd=ROOT,
            env={**os.environ, "HF_HUB_DISABLE_PROGRESS_BARS": "1", "TOKENIZERS_PARALLELISM": "false"},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
        while _still_runs(making):
            step.at("converting it, once" if how == ["convert"] else f"downloading, {_megabytes(folder)} MB so far")
    if making.returncode:
        raise _failure(log)


def _still_runs(making: subprocess.Popen[bytes]) -> bool:
    try:
        making.wait(1)
    except subprocess.TimeoutExpired:
        return True
    return False


def _megabytes(folder: Path) -> int:
    draft = folder.with_name(folder.name + ".new")
    return sum(path.stat().st_size for path in draft.rglob("*") if path.is_file()) // 1_000_000


def _failure(log: Path) -> SetupProblem:
    last = (log.read_text(errors="replace").strip().splitlines() or ["no reason given"])[-1]
    if last.startswith("palaver: "):
        cause, _, cure = last.removeprefix("palaver: ").rpartition(". ")
        return SetupProblem(cause, cure)
    return SetupProblem(f"the model could not be prepared ({last})", f"The whole output is in {log}")
