"""PostgreSQL and Valkey: those that the environment names, embedded ones for the rest."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import redis

from inference.servers import is_cluster, ping
from launcher.account import stand_in
from launcher.child import Child
from launcher.places import STATE, private_folder
from launcher.postgres import Postgres
from launcher.problems import SetupProblem
from launcher.settings_file import Secrets
from launcher.valkey import Valkey

URLS = ("DATABASE_URL", "BROKER_URL", "STREAMS_URL")
# Numbered databases of the one Valkey that serves both in development.
VALKEY_DATABASES = {"BROKER_URL": 0, "STREAMS_URL": 1}


@dataclass(frozen=True)
class Servers:
    """Where they are, those that are our children, and the folder of these."""

    urls: dict[str, str]
    children: tuple[Child, ...]
    folder: Path


@contextmanager
def running(secrets: Secrets, folder: Path = STATE, throw_away: bool = False) -> Iterator[Servers]:
    """Servers that answer, for as long as the block lasts. Raises `SetupProblem`."""
    urls = {name: os.environ[name] for name in URLS if os.environ.get(name)}
    _check_given(urls)
    logs = private_folder(folder / "log")
    children: list[Child] = []
    with ExitStack() as stack:

        def start(server: Postgres | Valkey) -> None:
            children.append(server.start())
            stack.callback(children[-1].stop)

        if "DATABASE_URL" not in urls:
            postgres = Postgres(folder, secrets.postgres_password, logs / "postgres.log", throw_away)
            start(postgres)
            urls["DATABASE_URL"] = postgres.url
        if not VALKEY_DATABASES.keys() <= urls.keys():
            valkey = Valkey(folder, secrets.valkey_password, logs / "valkey.log", throw_away)
            start(valkey)
            urls = {name: valkey.url(number) for name, number in VALKEY_DATABASES.items()} | urls
        yield Servers(urls, tuple(children), folder)


@contextmanager
def throw_away() -> Iterator[Servers]:
    """Empty servers in a temporary folder that goes with them."""
    with tempfile.TemporaryDirectory(prefix="palaver-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o711)  # for the user that PostgreSQL runs as where we are root
        try:
            with running(Secrets.new(), Path(folder), throw_away=True) as servers:
                yield servers
        finally:
            shutil.rmtree(stand_in(Path(folder)), ignore_errors=True)


def _check_given(urls: Mapping[str, str]) -> None:
    if is_cluster(urls.get("BROKER_URL", "")):
        raise SetupProblem("BROKER_URL names a cluster", "Celery's queues need one server; STREAMS_URL may name one.")
    for name, url in urls.items():
        try:
            _reach(url)
        except (psycopg.Error, redis.RedisError, OSError, ValueError) as error:
            where = urlsplit(url).netloc.rpartition("@")[2]
            raise SetupProblem(
                f"the server that {name} names ({where}) does not answer: " + " ".join(str(error).split()),
                f"Start it or correct {name}; without {name}, make run brings its own.",
            ) from error


def _reach(url: str) -> None:
    if url.startswith(("postgres", "psql")):
        psycopg.connect(url.replace("psql://", "postgres://", 1), connect_timeout=10).close()
    else:
        ping(url, 10)
