"""make test: throw-away servers and the converted model, then pytest."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from launcher import lanes, model, servers
from launcher.lanes import Lane
from launcher.places import MODELS, STEPS
from launcher.progress import Step
from launcher.servers import Servers
from launcher.settings_file import Secrets

OF = STEPS["test"]


def main() -> None:
    """Run pytest with what `ARGS` holds, without it every test; leaves by `SystemExit`. Raises `SetupProblem`."""
    arguments = _arguments()
    with ExitStack() as stack:
        with Step(3, OF, "Getting the model") as step:
            chosen = model.obtain(os.environ.get("MODEL"), step)
        with Step(4, OF, "Starting throw-away PostgreSQL and Valkey"):
            started = [stack.enter_context(servers.throw_away()) for _ in arguments]
        print(f"[5/{OF}] Running the tests", flush=True)
        pairs = zip(arguments, started, strict=True)
        sys.exit(
            lanes.run([Lane(own, _environ(own_servers, chosen.path)) for own, own_servers in pairs], started[0].folder)
        )


def _arguments() -> Sequence[Sequence[str]]:
    """Of each pytest to run. Servers that were given are one set, which two must not share."""
    given = os.environ.get("ARGS", "")
    if given or any(os.environ.get(name) for name in servers.URLS):
        return [shlex.split(given)]
    return lanes.arguments_of_all()


def _environ(started: Servers, model_path: Path) -> Mapping[str, str]:
    settings = {
        **started.urls,
        "MODEL_PATH": str(model_path),
        "SECRET_KEY": Secrets.new().secret_key,
        "DEBUG": "false",
        "HTTPS": "false",
        "PALAVER_STATE": str(started.folder),  # a running product's run.env is not for tests
        "MODEL_CACHE": str(MODELS.parent / "model-cache"),  # so that the model's files are hashed once
        # Of an engine beside other lanes: two would spend more time on each other than on the small model.
        "OMP_NUM_THREADS": "1",
    }
    return os.environ | settings
