"""Run one of the simulations and print what came of it.

    python -m bench.simulation tiers
    python -m bench.simulation users [--seconds 1200]
    python -m bench.simulation scale [--part 0.1] [--seconds 10] [--shares 13 27 60]
    python -m bench.simulation lookahead [--values 0 1 2 4 8 16 32]
    python -m bench.simulation costs [--most-waiting 1000000]

Each on a Valkey of its own that is thrown away; no other server is needed.
"""

from __future__ import annotations

import argparse
import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import django

from launcher.valkey import Valkey

# Rows are only made, never stored; these settings are read and no server is asked.
SETTINGS = {
    "DJANGO_SETTINGS_MODULE": "chatsite.settings",
    "SECRET_KEY": "simulation-" + "0" * 50,
    "DATABASE_URL": "postgres://nobody@127.0.0.1:1/none",
    "BROKER_URL": "redis://127.0.0.1:1/0",
    "STREAMS_URL": "redis://127.0.0.1:1/1",
}
PROCESSES = 2
TIERS = ("free", "plus", "pro")


@contextmanager
def own_valkey() -> Iterator[list[str]]:
    """A server for as long as the block lasts: the addresses of a database for each process."""
    with tempfile.TemporaryDirectory(prefix="palaver-simulation-") as folder:
        valkey = Valkey(Path(folder), secrets.token_urlsafe(16), Path(folder) / "log", throw_away=True)
        child = valkey.start()
        try:
            yield [valkey.url(number) for number in range(PROCESSES)]
        finally:
            child.stop()


def options() -> argparse.Namespace:
    """What is asked for."""
    parser = argparse.ArgumentParser(description="The product's scheduling in simulated time.")
    which = parser.add_subparsers(dest="which", required=True)
    which.add_parser("tiers", help="shares and waits of three tiers on two workers")
    users = which.add_parser("users", help="27 unequal users of one tier, in three orders")
    users.add_argument("--seconds", type=float, default=1200)
    scale = which.add_parser("scale", help="thousands of workers")
    scale.add_argument("--part", type=float, default=1.0, help="of users, prompts, cells and places")
    scale.add_argument("--seconds", type=float, default=20)
    scale.add_argument(
        "--shares", type=float, nargs=3, default=(13, 27, 60), help="percent asked by " + ", ".join(TIERS)
    )
    lookahead = which.add_parser("lookahead", help="how deep queues are kept, and what that costs")
    lookahead.add_argument("--values", type=int, nargs="+", default=(1, 2, 4, 8, 16, 32, 64))
    costs = which.add_parser("costs", help="what each operation of the scheduler takes")
    costs.add_argument("--most-waiting", type=int, default=1_000_000)
    return parser.parse_args()


def run(wanted: argparse.Namespace, urls: list[str]) -> None:
    """Do it."""
    from bench.simulation import between, costs, lookahead, scale, within

    match wanted.which:
        case "tiers":
            between.report(urls[0])
        case "users":
            within.report(within.Trial(wanted.seconds), urls[0])
        case "scale":
            shares = {tier: percent / 100 for tier, percent in zip(TIERS, wanted.shares, strict=True)}
            size = replace(scale.Size(), seconds=wanted.seconds, shares=shares)
            scale.report(size.times(wanted.part), urls)
        case "lookahead":
            lookahead.report(wanted.values, urls[0])
        case "costs":
            costs.report(wanted.most_waiting, urls[0])


def set_up() -> None:
    """Let rows be made."""
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    django.setup()


def main() -> None:
    """Set up, run, print."""
    wanted = options()
    set_up()
    with own_valkey() as urls:
        run(wanted, urls)


if __name__ == "__main__":
    main()
