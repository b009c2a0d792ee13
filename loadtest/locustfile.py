"""People who chat with a running Palaver, for Locust.

    PALAVER_KEYS=keys.txt locust -f loadtest/locustfile.py --host http://127.0.0.1:8000

The file has an API key in each line, of as many users as shall come: from a Palaver's `manage.py apikey USER`. How many
come and when is Locust's, in its page or by `--users`, unless PALAVER_LOADTEST_PLAN names a plan: then they come by its
steps, as `make loadtest` has it.
"""

from __future__ import annotations

import json
import os
from argparse import ArgumentParser
from dataclasses import asdict
from pathlib import Path
from typing import Any

from locust import LoadTestShape, events

from loadtest import keys
from loadtest.behaviour import Behaviour
from loadtest.figures import StepFigures
from loadtest.plan import PLAN, Plan
from loadtest.stepping import Recorder, Steps
from loadtest.users import Chatter, now

__all__ = ["Chatter"]

RECORDER = Recorder(now)


def add_options(parser: ArgumentParser) -> None:
    """Ours beside Locust's, on its page too."""
    group = parser.add_argument_group("Palaver")
    own: dict[str, dict[str, Any]] = {
        "--keys": {"env_var": "PALAVER_KEYS", "default": "", "help": "file with an API key a line"},
        "--think-seconds": {"type": float, "default": 20.0, "help": "mean time between an answer and a question"},
        "--turns": {"type": float, "default": 4.0, "help": "mean number of questions in a chat"},
        "--answer-tokens": {"type": int, "default": 250, "help": "the median of answers' longest lengths"},
        "--chat-seed": {"type": int, "default": 1, "help": "the same one gives the same people"},
    }
    for name, how in own.items():
        group.add_argument(name, **how)


def begin(environment: Any, **_: Any) -> None:
    """Give all users their keys and ways; without keys the test ends here, in one line."""
    options = environment.parsed_options
    try:
        Chatter.keys = keys.read(Path(options.keys))
    except keys.NoKeys as problem:
        raise SystemExit(f"palaver: {problem}") from None
    Chatter.behaviour = Behaviour(options.think_seconds, options.turns, options.answer_tokens, options.chat_seed)
    Chatter.recorder = RECORDER


events.init_command_line_parser.add_listener(add_options)  # type: ignore[no-untyped-call]
events.test_start.add_listener(begin)  # type: ignore[no-untyped-call]

if PLAN in os.environ:

    class InSteps(LoadTestShape):
        """Users in steps, each of which is told in a line of the plan's file."""

        def __init__(self) -> None:
            super().__init__()  # type: ignore[no-untyped-call]
            self._plan = Plan.read(Path(os.environ[PLAN]))
            self._steps = Steps(self._plan, RECORDER, self._tell)

        def tick(self) -> tuple[int, float] | None:
            """Locust's."""
            users = self._steps.users_now()
            return None if users is None else (users, self._plan.spawn_per_s)

        def _tell(self, step: StepFigures) -> None:
            with Path(self._plan.figures).open("a") as file:
                file.write(json.dumps(asdict(step)) + "\n")
