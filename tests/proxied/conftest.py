"""Two web processes and two workers behind two layers of nginx; each process may be restarted."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
import trustme

from launcher.child import free_port
from tests.proxied import layers
from tests.sse_client import Api
from tests.stack.stack import MODEL, Stack, running, started

PROXIED_DB = 8
# At the pace that people see, in workers that soon hand back what is not done.
WISHES = {"SCRIPT_SLOTS": "128", "SCRIPT_TOKENS_PER_S": "20", "DRAIN_S": "1", "BEHIND_PROXY": "true"}
LONGEST = 4096  # tokens, of an answer: some minutes
UP_WITHIN_S = 60
# nginx passes over a process that did not take a connection for `fail_timeout`, though it is back.
FORGIVEN_AFTER_S = 1.5


class Part:
    """One process of the product, which may be restarted."""

    def __init__(
        self, name: str, module: Sequence[str], environ: Mapping[str, str], folder: Path, port: int = 0
    ) -> None:
        self._ready = folder / f"{name}.ready"
        self._start = name, module, {**environ, "READY_FILE": str(self._ready)}, folder
        self._port = port
        self.process = started(*self._start)

    async def restart(self) -> None:
        """SIGTERM, and the same again; returns when it takes work."""
        await asyncio.to_thread(self.process.stop)
        self._ready.unlink(missing_ok=True)
        self.process = started(*self._start)
        await asyncio.to_thread(self.wait)
        await asyncio.sleep(FORGIVEN_AFTER_S)

    def stop(self) -> None:
        """For good."""
        self.process.stop()

    def wait(self) -> None:
        """Return when it takes work: a web process connections, a worker runs."""
        give_up_at = time.monotonic() + UP_WITHIN_S
        while not (layers.listens(self._port) if self._port else self._ready.exists()):
            self.process.check()
            assert time.monotonic() < give_up_at, self.process.tail()
            time.sleep(0.1)


@dataclass(frozen=True)
class Proxied:
    """The ways in, straight to a web process and through both proxies or ours alone, and the parts behind them."""

    direct: Api
    strange: Api
    tls_port: int
    trust: ssl.SSLContext
    webs: Sequence[Part]
    workers: Sequence[Part]


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    """Started once a module. The stack's own web process, which no proxy knows, is the control."""
    folder = tmp_path_factory.mktemp("proxied")
    authority = trustme.CA()
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    doors = {"plain": free_port(), "tls": free_port()}
    outer = free_port()
    with ExitStack() as cleanup:
        stack = cleanup.enter_context(running("scripted", PROXIED_DB, folder, WISHES))
        with psycopg.connect(stack.database_url, autocommit=True) as database:
            for table in ("scheduler_tier", "scheduler_model"):
                database.execute(f"UPDATE {table} SET max_output_tokens = {LONGEST}".encode())
        ports = [free_port(), free_port()]
        webs = [_web(stack, folder, n, port) for n, port in enumerate(ports, 1)]
        workers = [_worker(stack, folder, n) for n in (2, 3)]
        for part in (*webs, *workers):
            cleanup.callback(part.stop)
            part.wait()
        stack.worker.stop()
        for name in ("ours", "strange"):
            (folder / name).mkdir()
        cleanup.enter_context(layers.ours(folder / "ours", ports, authority, doors))
        cleanup.enter_context(layers.strange(folder / "strange", outer, doors["tls"]))
        yield Proxied(stack.api, Api(outer, stack.key), doors["tls"], trust, webs, workers)


def _web(stack: Stack, folder: Path, number: int, port: int) -> Part:
    return Part(f"web{number}", ["chatsite.serve", "--port", str(port)], stack.environ, folder, port)


def _worker(stack: Stack, folder: Path, number: int) -> Part:
    name = f"gpu{number}@test"
    return Part(name, ["inference.worker", "--model", MODEL, "--worker-name", name], stack.environ, folder)
