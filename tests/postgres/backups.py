"""A product with all that is worth keeping, its backup, and another machine on which that is restored."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import psycopg

from launcher.child import free_port
from launcher.postgres import Postgres, programs
from tests.sse_client import Api, Reading
from tests.stack.stack import (
    MODEL,
    ROOT,
    START_PATIENCE_S,
    Stack,
    await_ready,
    environment,
    flush,
    manage,
    new_users,
    other_db,
    started,
)
from tests.stack.stopping import until

PASSWORD = "correct horse battery"
SHORT = 'Hello. [[script {"chars": 20}]]'
# Takes the engine five seconds, within which its worker puts text by.
LONG = 'At length, please. [[script {"chars": 400}]]'
MARKER = "<!-- run by tests/postgres/test_backup.py -->\n```bash\n"
LEDGER = """
    SELECT day, model_id, runs, input_tokens, output_tokens, charged_tokens FROM scheduler_ledgerentry
     WHERE user_id = (SELECT id FROM chat_user WHERE username = %s) ORDER BY day, model_id
"""
OWN_LIMITS = """
    INSERT INTO scheduler_override (user_id, concurrency, until, reason)
    SELECT id, 7, now() + interval '1 day', '' FROM chat_user WHERE username = %s
"""


@dataclass(frozen=True)
class Live:
    """A run that was live when the backup was made, as its reader knew it."""

    asked: Mapping[str, Any]
    reading: Reading


@dataclass(frozen=True)
class Kept:
    """What was there when the backup was made: a person, who is quiet, and a program with two live runs."""

    name: str
    key: str
    answers: Mapping[str, Any]
    ledger: Sequence[tuple[Any, ...]]
    program: str
    streamed: Live  # had put text by, and told more
    queued: Live  # no worker had taken it


def run_documented(number: int, environ: Mapping[str, str], folder: Path) -> None:
    """Run one of the blocks of docs/postgres.md that are marked for it, from a shell in `folder`."""
    script = (ROOT / "docs/postgres.md").read_text().split(MARKER)[number].split("```")[0]
    path = f"{programs()}:{os.environ['PATH']}"
    subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env={**os.environ, **environ, "PATH": path},
        check=True,
        timeout=120,
    )


def browser_of(port: int) -> httpx.Client:
    """One that nobody has signed in with."""
    return httpx.Client(base_url=f"http://127.0.0.1:{port}", follow_redirects=True, timeout=30)


def send(browser: httpx.Client, address: str, **form: str) -> httpx.Response:
    """Send the form that stands at an address."""
    browser.get(address)
    return browser.post(address, data={**form, "csrfmiddlewaretoken": browser.cookies["csrftoken"]}).raise_for_status()


async def told(api: Api) -> dict[str, Any]:
    """All that the API says to a user, but for what moves by itself: the level of the budget, and what day it is."""
    chats = (await api.get("/api/chats"))["results"]
    usage = await api.get("/api/usage")
    paths = [path for chat in chats for path in (f"/api/chats/{chat['id']}", f"/api/chats/{chat['id']}/messages")]
    return {
        "chats": chats,
        "usage": {name: value for name, value in usage.items() if name not in {"budget", "today"}},
        **{path: await api.get(path) for path in paths},
    }


def ledger(database_url: str, name: str) -> Sequence[tuple[Any, ...]]:
    """What a user has used."""
    with psycopg.connect(database_url) as connection:
        return connection.execute(LEDGER, [name]).fetchall()


async def used(stack: Stack) -> Kept:
    """Use the product as a person and as a program; its worker stands still at the end."""
    name = f"kept-{uuid4().hex[:8]}"
    with browser_of(stack.port) as browser:
        send(browser, "/sign-up", username=name, password1=PASSWORD, password2=PASSWORD)
        token = {"X-CSRFToken": browser.cookies["csrftoken"]}
        key = browser.post("/api/keys", json={"name": "kept"}, headers=token).raise_for_status().json()["secret"]
    with psycopg.connect(stack.database_url) as connection:
        connection.execute("UPDATE chat_user SET tier_id = 'pro' WHERE username = %s", [name])
        connection.execute(OWN_LIMITS, [name])
    [program] = new_users(stack.database_url, 1)
    await _chat(stack.port, key)
    streamed = await _begun(stack, Api(stack.port, program))
    stack.worker.popen.send_signal(signal.SIGSTOP)
    queued = Live(await Api(stack.port, program).ask(SHORT), Reading())
    answers = await told(Api(stack.port, key))
    return Kept(name, key, answers, ledger(stack.database_url, name), program, streamed, queued)


async def _chat(port: int, key: str) -> None:
    api = Api(port, key)
    for title, turns in (("Worth keeping", 2), ("This too", 1)):
        chat_id = (await api.post("/api/chats", {}))["id"]
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=api.headers) as client:
            (await client.patch(f"/api/chats/{chat_id}", json={"title": title})).raise_for_status()
        for _ in range(turns):
            await api.read((await api.ask(SHORT, chat_id))["stream"], Reading())


async def _begun(stack: Stack, api: Api) -> Live:
    """A run that has put text by, and a reader who has more."""
    live = Live(await api.ask(LONG), Reading())
    reader = asyncio.create_task(api.read(live.asked["stream"], live.reading))
    with psycopg.connect(stack.database_url, autocommit=True) as connection:
        put_by = "SELECT 1 FROM chat_checkpoint WHERE run_id = %s"
        await until(lambda: connection.execute(put_by, [live.asked["run_id"]]).fetchone())
    has = len(live.reading.text)
    await until(lambda: len(live.reading.text) > has + 5)
    reader.cancel()
    return live


@contextmanager
def machine(folder: Path, redis_dbs: int, wishes: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """A server with nothing in it; yields the environment of a product there, that has no processes yet."""
    with ExitStack() as cleanup:
        server = Postgres(folder, "on-another-machine", folder / "postgres.log", throw_away=True)
        cleanup.callback(server.start().stop)
        environ = {**os.environ, **environment("scripted", folder), **wishes, "DATABASE_URL": server.url}
        for name in ("BROKER_URL", "STREAMS_URL"):
            environ[name] = other_db(os.environ[name], redis_dbs)
            flush(environ[name])
            cleanup.callback(flush, environ[name])
        yield environ


@contextmanager
def served(environ: Mapping[str, str], folder: Path, key: str) -> Iterator[Stack]:
    """A product on what is in its database."""
    manage(environ, "migrate", "--no-input", "-v0")
    port = free_port()
    with ExitStack() as cleanup:

        def start(name: str, *module: str) -> Any:
            process = started(name, module, environ, folder)
            cleanup.callback(process.stop)
            return process

        web = start("web", "chatsite.serve", "--port", str(port))
        reaper = start("reaper", "manage", "reaper")
        worker = start("worker", "inference.worker", "--model", MODEL, "--worker-name", "gpu1@restored")
        stack = Stack(port, key, environ, web, reaper, worker)
        await_ready(stack, Path(environ["READY_FILE"]), START_PATIENCE_S["scripted"])
        yield stack
