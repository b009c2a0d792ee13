"""What may be asked of a test on the command line."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

from launcher.places import SHARED
from loadtest import keys
from loadtest.behaviour import Behaviour
from loadtest.knee import Bounds

RESULTS = SHARED / "loadtest"
EX_USAGE = 64
ENGINES = ("vllm", "scripted")
TIERS = "free=7,plus=2,pro=1"


@dataclass(frozen=True)
class Defaults:
    """What fits a kind of hardware."""

    step_users: int
    step_seconds: float
    most_users: int
    ttft_s: float
    speed: float
    think_s: float
    answer_tokens: int


DEFAULTS: Mapping[str, Defaults] = {
    "gpu": Defaults(
        step_users=20, step_seconds=120.0, most_users=600, ttft_s=2.0, speed=10.0, think_s=20.0, answer_tokens=250
    ),
    # A small model on a few cores, for a test of minutes. Answers as slow as that make the slots the limit, which
    # neighbours on the machine move less than the speed.
    "cpu": Defaults(
        step_users=5, step_seconds=40.0, most_users=40, ttft_s=5.0, speed=2.0, think_s=3.0, answer_tokens=64
    ),
}


class BadOptions(Exception):
    """They cannot be done; the text says why."""


@dataclass(frozen=True)
class Options:
    """A whole test."""

    url: str | None
    keys: Path | None
    engine: str
    step_users: int
    step_seconds: float
    most_users: int
    ttft_bound_s: float
    speed_bound: float
    think_seconds: float
    turns: float
    answer_tokens: int
    tiers: Mapping[str, int]
    margin: float
    seed: int
    out: Path

    @property
    def bounds(self) -> Bounds:
        """What must hold."""
        return Bounds(self.ttft_bound_s, self.speed_bound)

    @property
    def behaviour(self) -> Behaviour:
        """How people chat."""
        return Behaviour(self.think_seconds, self.turns, self.answer_tokens, self.seed)

    def as_json(self) -> Mapping[str, Any]:
        """For the report: where files of the user's are is nobody's business."""
        told = asdict(self)
        del told["keys"], told["out"]
        return told


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise BadOptions(message)


def parser() -> argparse.ArgumentParser:
    """All options; `None` is what the hardware decides."""
    made = _Parser(prog="make loadtest, python -m loadtest", description=__doc__, allow_abbrev=False)
    add = made.add_argument
    add("--url", type=_address, help="of a deployment that runs, in place of one that is started for the test")
    add("--keys", type=Path, help="with --url: a file with an API key a line, best one for each user")
    add("--engine", choices=ENGINES, default="vllm", help="scripted: without a model, for a dry run")
    add("--step-users", type=_count, help="users that each step adds")
    add("--step-seconds", type=_number(5), help="that a step takes; its first 30 %% do not count")
    add("--most-users", type=_count, help="of the last step")
    add("--ttft-bound-s", type=_number(0.001), help="seconds to the first words, for 95 of 100 questions")
    add("--speed-bound", type=_number(0.001), help="tokens/s that the median user must have")
    add("--think-seconds", type=_number(0.001), help="mean time between an answer and the next question")
    add("--turns", type=_number(1), default=4.0, help="mean number of questions in a chat")
    add("--answer-tokens", type=_count, help="median of the answers' longest lengths")
    add("--tiers", type=_shares, default=_shares(TIERS), help=f"who comes, by weights ({TIERS}); not with --url")
    add("--margin", type=_margin, default=0.25, help="that the advice stays below the knee (0.25)")
    add("--seed", type=int, default=1, help="the same one gives the same people")
    add("--out", type=Path, default=RESULTS, help="folder for reports, each in one of its own (.palaver/loadtest)")
    add(
        "--compare", nargs=2, type=Path, metavar="REPORT.json", help="measure nothing: hold two reports' knees together"
    )
    return made


def options_of(told: argparse.Namespace, hardware: str) -> Options:
    """Raises `BadOptions` for what does not go together."""
    if (told.url is None) != (told.keys is None):
        raise BadOptions("--url and --keys go together: where it is, and a file of API keys there")
    if told.url and told.engine != "vllm":
        raise BadOptions("--engine is for the deployment that is started for a test, not for the one at --url")
    fit = DEFAULTS[hardware]
    chosen = Options(
        told.url,
        told.keys,
        told.engine,
        told.step_users or fit.step_users,
        told.step_seconds or fit.step_seconds,
        told.most_users or max(fit.most_users, told.step_users or 0),
        told.ttft_bound_s or fit.ttft_s,
        told.speed_bound or fit.speed,
        told.think_seconds or fit.think_s,
        told.turns,
        told.answer_tokens or fit.answer_tokens,
        told.tiers,
        told.margin,
        told.seed,
        told.out,
    )
    if chosen.step_users > chosen.most_users:
        raise BadOptions(f"--step-users {chosen.step_users} is more than --most-users {chosen.most_users}")
    if chosen.keys:
        _check_keys(chosen.keys)
    return chosen


def _check_keys(path: Path) -> None:
    try:
        keys.read(path)
    except keys.NoKeys as problem:
        raise BadOptions(str(problem).rstrip(".")) from problem


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """What is written there. Raises `BadOptions`."""
    return parser().parse_args(arguments)


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 100_000:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 to 100000")
    return int(text)


def _number(least: float) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not least <= number < 1e6:
            raise argparse.ArgumentTypeError(f"{text!r} is no number from {least:g} on")
        return number

    return read


def _margin(text: str) -> float:
    margin = _number(0)(text)
    if margin > 0.9:
        raise argparse.ArgumentTypeError(f"{text!r} is not from 0 to 0.9")
    return margin


def _address(text: str) -> str:
    try:
        parts = urlsplit(text)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        valid = False
    if not valid or parts.path.strip("/") or parts.query or parts.username:
        raise argparse.ArgumentTypeError(f"{text!r} is no address like http://127.0.0.1:8000")
    return text.rstrip("/")


def _shares(text: str) -> Mapping[str, int]:
    found = {}
    for part in text.split(","):
        tier, _, weight = part.partition("=")
        if not tier or not weight.isascii() or not weight.isdigit() or not int(weight):
            raise argparse.ArgumentTypeError(f"{text!r} is not like {TIERS}")
        found[tier] = int(weight)
    return found
