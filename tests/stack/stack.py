"""The whole product as processes of its own: a database, web, reaper, worker, and nothing shared with others."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import urlopen
from uuid import uuid4

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from inference.servers import blocking
from launcher.child import free_port
from tests.real_model import model_folder
from tests.sse_client import Api

ROOT = Path(__file__).parents[2]
MODEL = "default"
SLOTS = 64  # of the scripted engine
START_PATIENCE_S = {"scripted": 60, "vllm": 240}
STOP_PATIENCE_S = 20
LOG_TAIL_LINES = 40

NO_LIMITS = """
    UPDATE scheduler_tier
       SET concurrency = 10000, budget_tokens = 2000000000, refill_tokens_per_hour = 2000000000,
           queue_depth = 100000, queue_deadline_s = 86400, shed_at_percent = 100
"""
NEW_KEY = """
    INSERT INTO chat_apikey (user_id, name, shown, digest)
    SELECT id, 'test', left(%(key)s, 10), encode(sha256(%(key)s::bytea), 'hex') FROM chat_user WHERE username = 'demo'
"""
NEW_USERS = """
    WITH named AS (
        SELECT gen_random_uuid() AS id, name, key FROM unnest(%(names)s::text[], %(keys)s::text[]) AS new (name, key)
    ), users AS (
        INSERT INTO chat_user
        SELECT (jsonb_populate_record(demo, jsonb_build_object('id', named.id, 'username', name))).*
          FROM chat_user demo, named WHERE demo.username = 'demo'
    )
    INSERT INTO chat_apikey (user_id, name, shown, digest)
    SELECT id, 'test', left(key, 10), encode(sha256(key::bytea), 'hex') FROM named
"""


COPY_MODEL = (
    """
    INSERT INTO scheduler_model SELECT (jsonb_populate_record(model, %(changes)s)).*
      FROM scheduler_model AS model WHERE is_default
    """,
    """
    INSERT INTO scheduler_modelversion
    SELECT (jsonb_populate_record(version, jsonb_build_object('model_id', %(slug)s::text, 'number', 1,
                'id', nextval(pg_get_serial_sequence('scheduler_modelversion', 'id'))))).*
      FROM scheduler_modelversion AS version JOIN scheduler_model AS model ON model.version_id = version.id
     WHERE is_default
    """,
    """
    UPDATE scheduler_model SET version_id = (SELECT id FROM scheduler_modelversion WHERE model_id = %(slug)s)
     WHERE slug = %(slug)s
    """,
    "INSERT INTO scheduler_model_tiers (model_id, tier_id) SELECT %(slug)s, slug FROM scheduler_tier",
)


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

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Hold it still, so that nothing moves meanwhile."""
        self.popen.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.popen.send_signal(signal.SIGCONT)

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
    reaper: Process
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
        return (self.web, self.reaper, self.worker)

    def tails(self) -> str:
        """The last lines of all logs."""
        return "\n".join(process.tail() for process in self.processes)


@contextmanager
def running(engine: str, first_redis_db: int, folder: Path, wishes: Mapping[str, str]) -> Iterator[Stack]:
    """A stack on a database of its own and the two Redis databases from `first_redis_db` further on.

    `wishes` are environment variables. Raises `StackBroken`.
    """
    with ExitStack() as cleanup:
        environ = {**os.environ, **environment(engine, folder), **_own_redis(first_redis_db), **wishes}
        environ["DATABASE_URL"] = cleanup.enter_context(
            own_database(os.environ["DATABASE_URL"], f"stack_{os.getpid()}_{first_redis_db}")
        )
        for url in (environ["BROKER_URL"], environ["STREAMS_URL"]):
            cleanup.callback(flush, url)
            flush(url)
        key = prepared(environ)
        port = free_port()
        web = started("web", ["chatsite.serve", "--port", str(port)], environ, folder)
        cleanup.callback(web.stop)
        reaper = started("reaper", ["manage", "reaper"], environ, folder)
        cleanup.callback(reaper.stop)
        worker = started(
            "worker", ["inference.worker", "--model", MODEL, "--worker-name", "gpu1@test"], environ, folder
        )
        cleanup.callback(worker.stop)
        stack = Stack(port, key, environ, web, reaper, worker)
        await_ready(stack, Path(environ["READY_FILE"]), START_PATIENCE_S[engine])
        yield stack


def new_users(database_url: str, count: int) -> Sequence[str]:
    """Make more users like the demo account, past the product; returns a key of each."""
    keys = {f"stack-{uuid4()}": f"pal_{uuid4()}" for _ in range(count)}
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(NEW_USERS, {"names": list(keys), "keys": list(keys.values())})
    return list(keys.values())


@contextmanager
def web_beside(stack: Stack, folder: Path, *listen: str) -> Iterator[tuple[Process, int]]:
    """One more web process of the stack's product, on a port of its own unless `listen` says where."""
    port = free_port()
    web = started("web2", ["chatsite.serve", *(listen or ("--port", str(port)))], stack.environ, folder)
    try:
        while not (listen or answers(port)):
            web.check()
            time.sleep(0.1)
        yield web, port
    finally:
        web.stop()


@contextmanager
def worker_beside(stack: Stack, folder: Path, module: str, wishes: Mapping[str, str]) -> Iterator[Process]:
    """One more worker of the stack's product, run from `module`. Raises `StackBroken`."""
    ready_file = folder / "ready"
    environ = {**stack.environ, **wishes, "READY_FILE": str(ready_file)}
    worker = started("worker2", [module, "--model", MODEL, "--worker-name", "gpu2@test"], environ, folder)
    try:
        while not ready_file.exists():
            worker.check()
            time.sleep(0.1)
        yield worker
    finally:
        worker.stop()


def environment(engine: str, folder: Path) -> dict[str, str]:
    """What a product's processes read, without their servers."""
    return {
        "DJANGO_SETTINGS_MODULE": "tests.stack.settings",
        "DEBUG": "0",
        "HTTPS": "0",
        "SECRET_KEY": "stack-" + "0" * 60,
        "ENGINE": engine,
        "PALAVER_STATE": str(folder),
        "STATIC_ROOT": str(static_root()),
        "READY_FILE": str(folder / "ready"),
        "PYTHONUNBUFFERED": "1",
        "WEB_DRAIN_S": "1",
        # One account does everything, which no person could.
        "REQUESTS_PER_MINUTE": "1000000",
        "STREAMS_PER_USER": "10000",
    }


@cache
def static_root() -> Path:
    """Where the static files of all stacks of this process are; the first to be prepared gathers them there."""
    folder = Path(tempfile.mkdtemp(prefix="palaver-static-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _own_redis(first_db: int) -> dict[str, str]:
    return {name: other_db(os.environ[name], first_db) for name in ("BROKER_URL", "STREAMS_URL")}


def other_db(url: str, further: int) -> str:
    """The database that stands so much further on, on the same Redis."""
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
    with blocking(url) as redis:
        redis.flushdb()


def prepared(environ: Mapping[str, str]) -> str:
    """Migrate, make tiers, model and demo account as `make run` does, and return a key of that account.

    The model has the window that `MODEL_WINDOW` says, in tokens, else its own.
    """
    _run(environ, "-m", "launcher.database", str(model_folder()), MODEL)
    key = f"pal_{uuid4()}"
    # Limits of the account are not what a stack tests.
    with psycopg.connect(environ["DATABASE_URL"], autocommit=True) as connection:
        connection.execute(NO_LIMITS)
        connection.execute("UPDATE scheduler_model SET queue_depth = 100000")
        if window := environ.get("MODEL_WINDOW"):
            for table in ("scheduler_model", "scheduler_modelversion"):
                connection.execute(f"UPDATE {table} SET context_window = {int(window)}".encode())
        connection.execute(NEW_KEY, {"key": key})
    return key


def copy_model(connection: psycopg.Connection, slug: str, name: str) -> None:
    """Another model like the default one, with a version of its own and for all tiers, past the product."""
    changes = {"slug": slug, "name": name, "is_default": False, "version_id": None}
    for statement in COPY_MODEL:
        connection.execute(statement, {"slug": slug, "changes": Jsonb(changes)})


def manage(environ: Mapping[str, str], *arguments: str) -> str:
    """Run manage.py; returns what it printed. Raises `StackBroken`."""
    return _run(environ, str(ROOT / "manage.py"), *arguments)


def _run(environ: Mapping[str, str], *arguments: str) -> str:
    command = [sys.executable, *arguments]
    ran = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=120, check=False)
    if ran.returncode:
        raise StackBroken(f"{' '.join(arguments)} failed\n{ran.stdout}\n{ran.stderr}")
    return ran.stdout


def started(
    name: str, module: Sequence[str], environ: Mapping[str, str], folder: Path, prefix: Sequence[str] = ()
) -> Process:
    """Start a module's process; it adds to the log of those of its name before it. `prefix` is what runs it."""
    command = [*prefix, sys.executable, "-m", *module]
    log = folder / f"{name}.log"
    with log.open("ab") as output:
        popen = subprocess.Popen(command, cwd=ROOT, env=environ, stdout=output, stderr=subprocess.STDOUT)
    return Process(name, popen, log)


def await_ready(stack: Stack, ready_file: Path, patience_s: float) -> None:
    """Return when its web process answers and its worker takes runs. Raises `StackBroken`."""
    deadline = time.monotonic() + patience_s
    while not (ready_file.exists() and answers(stack.port)):
        for process in stack.processes:
            process.check()
        if time.monotonic() > deadline:
            raise StackBroken(f"not ready within {patience_s} s\n{stack.tails()}")
        time.sleep(0.1)


def answers(port: int) -> bool:
    """Whether a web process serves there."""
    with contextlib.suppress(OSError), urlopen(f"http://127.0.0.1:{port}/admin/login/", timeout=5) as answer:
        return bool(answer.status == 200)
    return False
