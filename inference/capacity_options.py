"""What may be asked of a model's capacity, by `manage.py capacity` and by the process that tells it."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterator, Mapping
from typing import Any

NUMBERS = ("length", "answer", "think", "least")


def add_profile(parser: ArgumentParser) -> None:
    """The options that say how people chat, and what is to be told."""
    parser.add_argument(
        "--length", type=_positive, default=1024, help="tokens of a chat, answer included (%(default)s)"
    )
    parser.add_argument("--answer", type=_positive, default=250, help="tokens of an answer (%(default)s)")
    parser.add_argument("--think", type=_positive, default=30, help="seconds between answers (%(default)s)")
    parser.add_argument("--least", type=float, default=10.0, help="tokens/s that each must have (%(default)s)")
    parser.add_argument("--gpu", type=_positive, action="append", metavar="GIB", help="another GPU's memory")
    parser.add_argument("--no-speed", action="store_true", help="measure nothing")


def given(options: Mapping[str, Any]) -> Iterator[str]:
    """The arguments that were parsed to these options."""
    for name in NUMBERS:
        yield from (f"--{name}", str(options[name]))
    for gib in options["gpu"] or ():
        yield from ("--gpu", str(gib))
    if options["no_speed"]:
        yield "--no-speed"


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number
