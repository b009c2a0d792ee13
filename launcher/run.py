"""make run: servers, model, database, then web, reaper and workers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from launcher import install, model, processes, ready, servers, settings_file, workers
from launcher.locks import only_one
from launcher.model import Model
from launcher.options import Options
from launcher.places import ROOT, RUN_ENV, STATE, STEPS, private_folder
from launcher.problems import SetupProblem
from launcher.processes import Process
from launcher.progress import Step
from launcher.ready import Demo
from launcher.settings_file import Secrets

OF = STEPS["run"]


def main() -> None:
    """Run the product until told to stop; leaves by `SystemExit`. Raises `SetupProblem`."""
    options = Options.read()
    options.check_port_is_free()
    own = workers.environments(options.workers, install.hardware(), STATE / "ready")
    with only_one(STATE / "run.lock"), ExitStack() as stack:
        _empty(STATE / "ready")
        secrets = Secrets.kept()
        with Step(3, OF, "Getting the model") as step:
            chosen = model.obtain(options.model, step)
        with Step(4, OF, "Starting PostgreSQL and Valkey"):
            started = stack.enter_context(servers.running(secrets))
        settings = _settings(options, secrets, chosen) | started.urls
        stack.enter_context(_run_env(settings))
        with Step(5, OF, "Preparing the database"):
            demo = _prepare(chosen, settings)
        processes.run(
            [_web(options, settings), _reaper(settings), *_workers(chosen, settings, own)],
            started.children,
            lambda: _announce(options, demo, own),
        )


def _empty(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    private_folder(folder)


def _settings(options: Options, secrets: Secrets, chosen: Model) -> dict[str, str]:
    """What Django and the workers read; where the environment says something, it wins."""
    ours = {
        "SECRET_KEY": secrets.secret_key,
        "DEBUG": "false",
        "HTTPS": "false",  # plain HTTP on loopback; behind a TLS proxy: HTTPS=true
        "ALLOWED_HOSTS": options.allowed_hosts,
    }
    fixed = {"MODEL_PATH": str(chosen.path), "PALAVER_STATE": str(STATE), "ENGINE": options.engine}
    return {name: os.environ.get(name, value) for name, value in ours.items()} | fixed


@contextmanager
def _run_env(settings: Mapping[str, str]) -> Iterator[None]:
    """Have run.env there while the servers are: their ports and passwords mean nothing afterwards."""
    settings_file.write(settings)
    try:
        yield
    finally:
        RUN_ENV.unlink(missing_ok=True)


def _prepare(chosen: Model, settings: Mapping[str, str]) -> Demo:
    ended = subprocess.run(
        [sys.executable, "-m", "launcher.database", str(chosen.path), chosen.name],
        cwd=ROOT,
        env=_environ(settings),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        log = private_folder(STATE / "log") / "database.log"
        log.write_text(ended.stdout + ended.stderr)
        last = (ended.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise SetupProblem(f"the database could not be prepared ({last})", f"The whole output is in {log}")
    made = json.loads(ended.stdout.strip().splitlines()[-1])
    return Demo(made["demo_user"], made.get("demo_password"))


def _web(options: Options, settings: Mapping[str, str]) -> Process:
    listen = ["--host", options.host, "--port", str(options.port)]
    return Process("web", ["chatsite.serve", *listen], {"WEB_DRAIN_S": str(workers.DRAIN_S), **_environ(settings)})


def _reaper(settings: Mapping[str, str]) -> Process:
    return Process("reaper", ["manage", "reaper"], _environ(settings))


def _workers(chosen: Model, settings: Mapping[str, str], own: Sequence[Mapping[str, str]]) -> list[Process]:
    return [
        Process(
            f"gpu{number}",
            ["inference.worker", "--model", chosen.name, "--worker-name", f"{chosen.name}@gpu{number}"],
            {**_environ(settings), **environ},
        )
        for number, environ in enumerate(own, start=1)
    ]


def _environ(settings: Mapping[str, str]) -> dict[str, str]:
    return {**os.environ, **settings, "PYTHONUNBUFFERED": "1"}


def _announce(options: Options, demo: Demo, own: Sequence[Mapping[str, str]]) -> None:
    # Their output runs beside ours: a live line would be torn.
    with Step(6, OF, "Starting web tier and workers", live=False) as step:
        ready.wait(step, options.address, [Path(environ["READY_FILE"]) for environ in own])
    print(ready.welcome(options.address, demo), flush=True)
