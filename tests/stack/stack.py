"""The whole product as processes of its own: a database, a web process, a worker, and nothing shared with others."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import urlopen

import psycopg
from psycopg import sql
from redis import Redis

from tests.real_model import model_folder
from tests.sse_client import Api

ROOT = Path(__file__).parents[2]
MODEL = "default"
SLOTS = 64  # of the scripted engine
START_PATIENCE_S = {"scripted": 60, "vllm": 240}
STOP_PATIENCE_S = 20
LOG_TAIL_LINES = 40


class StackBroken(Exception):
    """A process of the stack did not start or did not stay; the text has its log's tail."""


@dataclass
class Process:
    """One process of ours, its log in a file."""

    name: str
    popen: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.popen.pid

    def tail(self) -> str:
        """The log's last lines."""
        lines = self.log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
        return "\n".join([f"--- {self.name} ({self.log})", *lines])

    def check(self) -> None:
        """Raises `StackBroken` when it has ended."""
        if self.popen.poll() is not None:
            raise StackBroken(f"{self.name} exited with {self.popen.returncode}\n{self.tail()}")

    def stop(self) -> None:
        """SIGTERM, then SIGKILL for what does not go."""
        self.popen.send_signal(signal.SIGTERM)
        try:
            self.popen.wait(STOP_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()


@dataclass
class Stack:
    """A running product."""

    port: int
    key: str
    environ: Mapping[str, str]
    web: Process
    worker: Process

    @property
    def database_url(self) -> str:
        """Its database."""
        return self.environ["DATABASE_URL"]

    @property
    def broker_url(self) -> str:
        """The Redis database of its rooms and queues."""
        return self.environ["BROKER_URL"]

    @property
    def streams_url(self) -> str:
        """The Redis database of its streams."""
        return self.environ["STREAMS_URL"]

    @property
    def api(self) -> Api:
        """The demo account's view of it."""
        return Api(self.port, self.key)

    @property
    def processes(self) -> Sequence[Process]:
        """All of them."""
        return (self.web, self.worker)

    def tails(self) -> str:
        """The last lines of all logs."""
        return "\n".join(process.tail() for process in self.processes)


@contextmanager
def running(engine: str, first_redis_db: int, folder: Path, wishes: Mapping[str, str]) -> Iterator[Stack]:
    """A stack on a database of its own and the two Redis databases from `first_redis_db` further on.

    `wishes` are environment variables. Raises `StackBroken`.
    """
    with ExitStack() as cleanup:
        environ = {**os.environ, **_environment(engine, first_redis_db, folder), **wishes}
        environ["DATABASE_URL"] = cleanup.enter_context(
            own_database(os.environ["DATABASE_URL"], f"stack_{os.getpid()}_{engine}")
        )
        for url in (environ["BROKER_URL"], environ["STREAMS_URL"]):
            cleanup.callback(flush, url)
            flush(url)
        key = _prepared(environ)
        port = free_port()
        web = _started("web", ["chatsite.serve", "--port", str(port)], environ, folder)
        cleanup.callback(web.stop)
        worker = _started(
            "worker", ["inference.worker", "--model", MODEL, "--worker-name", "gpu1@test"], environ, folder
        )
        cleanup.callback(worker.stop)
        stack = Stack(port, key, environ, web, worker)
        _await_ready(stack, Path(environ["READY_FILE"]), START_PATIENCE_S[engine])
        yield stack


@contextmanager
def web_beside(stack: Stack, folder: Path, *listen: str) -> Iterator[tuple[Process, int]]:
    """One more web process of the stack's product, on a port of its own unless `listen` says where."""
    port = free_port()
    web = _started("web2", ["chatsite.serve", *(listen or ("--port", str(port)))], stack.environ, folder)
    try:
        while not (listen or _answers(port)):
            web.check()
            time.sleep(0.1)
        yield web, port
    finally:
        web.stop()


def _environment(engine: str, first_redis_db: int, folder: Path) -> dict[str, str]:
    return {
        "DEBUG": "0",
        "HTTPS": "0",
        "SECRET_KEY": "stack-" + "0" * 60,
        "ENGINE": engine,
        "PALAVER_STATE": str(folder),
        "READY_FILE": str(folder / "ready"),
        "BROKER_URL": _other_db(os.environ["BROKER_URL"], first_redis_db),
        "STREAMS_URL": _other_db(os.environ["STREAMS_URL"], first_redis_db),
        "PYTHONUNBUFFERED": "1",
    }


def _other_db(url: str, further: int) -> str:
    parts = urlsplit(url)
    return parts._replace(path=f"/{int(parts.path.strip('/') or 0) + further}").geturl()


@contextmanager
def own_database(url: str, name: str) -> Iterator[str]:
    """Create a database beside the one that `url` names, and drop it at the end."""
    parts = urlsplit(url)
    with psycopg.connect(parts._replace(path="/postgres").geturl(), autocommit=True) as connection:
        drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
        connection.execute(drop)
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        try:
            yield parts._replace(path=f"/{name}").geturl()
        finally:
            connection.execute(drop)


def flush(url: str) -> None:
    """Empty one Redis database."""
    with Redis.from_url(url) as redis:
        redis.flushdb()


def _prepared(environ: Mapping[str, str]) -> str:
    """Migrate, make tiers, model and demo account, and return a key of that account."""
    manage(environ, "migrate", "--no-input", "-v0")
    manage(environ, "collectstatic", "--no-input", "-v0")
    manage(environ, "prepare", "--model-path", str(model_folder()), "--model-name", MODEL)
    # Limits of the account are not what a stack tests.
    with psycopg.connect(environ["DATABASE_URL"], autocommit=True) as connection:
        connection.execute("UPDATE scheduler_tier SET concurrency = 10000")
    key = re.search(r"pal_[\w-]+", manage(environ, "apikey", "demo"))
    assert key, "apikey printed none"
    return key.group()


def manage(environ: Mapping[str, str], *arguments: str) -> str:
    """Run manage.py; returns what it printed. Raises `StackBroken`."""
    command = [sys.executable, str(ROOT / "manage.py"), *arguments]
    ran = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=120, check=False)
    if ran.returncode:
        raise StackBroken(f"manage.py {arguments[0]} failed\n{ran.stdout}\n{ran.stderr}")
    return ran.stdout


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def _started(name: str, module: Sequence[str], environ: Mapping[str, str], folder: Path) -> Process:
    command = [sys.executable, "-m", *module]
    log = folder / f"{name}.log"
    with log.open("wb") as output:
        popen = subprocess.Popen(command, cwd=ROOT, env=environ, stdout=output, stderr=subprocess.STDOUT)
    return Process(name, popen, log)


def _await_ready(stack: Stack, ready_file: Path, patience_s: float) -> None:
    deadline = time.monotonic() + patience_s
    while not (ready_file.exists() and _answers(stack.port)):
        for process in stack.processes:
            process.check()
        if time.monotonic() > deadline:
            raise StackBroken(f"not ready within {patience_s} s\n{stack.tails()}")
        time.sleep(0.1)


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), urlopen(f"http://127.0.0.1:{port}/admin/login/", timeout=5) as answer:
        return bool(answer.status == 200)
    return False
