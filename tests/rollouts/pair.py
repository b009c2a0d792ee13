"""The product with two workers that are started again when they end, and an operator's browser."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psycopg
from psycopg.rows import dict_row

from launcher.child import free_port
from tests.sse_client import Api
from tests.stack.stack import (
    MODEL,
    Process,
    answers,
    environment,
    flush,
    manage,
    other_db,
    own_database,
    prepared,
    started,
)

PASSWORD = "correct horse battery"
NEW_OPERATOR = f"""
from chat.models import User
User.objects.create_superuser("operator", password="{PASSWORD}", tier_id="pro")
"""


class Unfinished(Exception):
    """Something did not come to its end in the time it had; the text says what is there instead."""


@dataclass
class Pair:
    """What a test holds of it."""

    port: int
    key: str
    environ: Mapping[str, str]
    folder: Path
    processes: Sequence[Process]

    @property
    def api(self) -> Api:
        """The demo account's view."""
        return Api(self.port, self.key)

    def rows(self, statement: str, *values: object) -> list[dict[str, Any]]:
        """What a query brings."""
        with psycopg.connect(self.environ["DATABASE_URL"], autocommit=True, row_factory=dict_row) as connection:
            return connection.execute(statement, values).fetchall()

    def tails(self) -> str:
        """The last lines of all logs."""
        return "\n".join(process.tail() for process in self.processes)

    @contextmanager
    def operator(self) -> Iterator[Operator]:
        """Signed in to the admin."""
        with httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=20, follow_redirects=True) as browser:
            operator = Operator(browser)
            operator.send("/admin/login/", username="operator", password=PASSWORD, next="/admin/")
            yield operator

    def until(self, condition: Any, patience_s: float) -> Any:
        """What `condition` returns once that is something. Raises `Unfinished`."""
        give_up_at = time.monotonic() + patience_s
        while not (found := condition()):
            if time.monotonic() > give_up_at:
                there = self.rows("SELECT name, phase, detail, version_id, target_id FROM scheduler_worker")
                raise Unfinished(f"{there}\n{self.tails()}")
            time.sleep(0.3)
        return found


@dataclass
class Operator:
    """An operator's browser."""

    browser: httpx.Client

    def page(self, address: str) -> str:
        """A page's text."""
        answer = self.browser.get(address)
        assert answer.status_code == 200, answer.text
        return answer.text

    def send(self, address: str, **fields: str) -> httpx.Response:
        """Fill in the form at an address; what is not named stays as the form has it."""
        shown = self.page(address)
        token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', shown)
        assert token, shown
        sent = {"csrfmiddlewaretoken": token.group(1), **_as_shown(shown), **fields}
        answer = self.browser.post(address, data=sent, headers={"Referer": str(self.browser.base_url)})
        assert answer.status_code == 200, answer.text
        assert "errorlist" not in answer.text, answer.text
        return answer

    def roll_out(self, **fields: str) -> int:
        """Stage another version of the default model and activate it; returns the rollout's id."""
        address = f"/admin/scheduler/modelversion/add/?model={MODEL}"
        answer = self.send(address, **fields, _activate="Save and roll out to all workers")
        found = re.search(r"/rollout/(\d+)/", str(answer.url))
        assert found, answer.text
        return int(found.group(1))


def _as_shown(page: str) -> dict[str, str]:
    """What the fields of a form hold."""
    held: dict[str, str] = {}
    for field in re.findall(r"<input[^>]*>", page):
        parts = dict(re.findall(r'(\w+)="([^"]*)"', field))
        if parts.get("type") in {"text", "number", "hidden"} and "name" in parts:
            held[parts["name"]] = parts.get("value", "")
        elif parts.get("type") == "checkbox" and " checked" in field and "name" in parts:
            held[parts["name"]] = "on"
    for name, options in re.findall(r'<select name="(\w+)"[^>]*>(.*?)</select>', page, re.DOTALL):
        chosen = re.search(r'<option value="([^"]*)" selected', options)
        held[name] = chosen.group(1) if chosen else ""
    return held


@contextmanager
def running(
    engine: str, first_redis_db: int, folder: Path, wishes: Mapping[str, str], of_workers: Sequence[Mapping[str, str]]
) -> Iterator[Pair]:
    """Two workers kept by `launcher.keeper`, each with an environment of its own, and all they need."""
    with ExitStack() as cleanup:
        environ = {**os.environ, **environment(engine, folder), **wishes}
        environ |= {name: other_db(os.environ[name], first_redis_db) for name in ("BROKER_URL", "STREAMS_URL")}
        environ["DATABASE_URL"] = cleanup.enter_context(own_database(os.environ["DATABASE_URL"], f"pair_{engine}"))
        for url in (environ["BROKER_URL"], environ["STREAMS_URL"]):
            flush(url)
            cleanup.callback(flush, url)
        key = prepared(environ)
        manage(environ, "shell", "-c", NEW_OPERATOR)
        port = free_port()
        processes = [
            started("web", ["chatsite.serve", "--port", str(port)], environ, folder),
            started("reaper", ["manage", "reaper"], environ, folder),
        ]
        for number, own in enumerate(of_workers, start=1):
            module = ["launcher.keeper", "inference.worker", "--model", MODEL, "--worker-name", f"gpu{number}@test"]
            ready = {"READY_FILE": str(folder / f"ready{number}")}
            processes.append(started(f"gpu{number}", module, {**environ, **own, **ready}, folder))
        for process in processes:
            cleanup.callback(process.stop)
        pair = Pair(port, key, environ, folder, processes)
        serving = "SELECT 1 FROM scheduler_worker WHERE phase = 'serving'"
        pair.until(lambda: len(pair.rows(serving)) == len(of_workers) and answers(port), 300)
        yield pair
