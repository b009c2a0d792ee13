"""Probes of the web process: whoever asks, under any name, and with whatever away."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import LazySettings
from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.recorder import MigrationRecorder
from django.db.utils import OperationalError

from chat.streaming import rows
from chatsite import health
from chatsite.asgi import Application
from chatsite.health import Health
from tests.sse_client import request
from tests.streaming.telling import serving

pytestmark = pytest.mark.django_db(transaction=True)

ALL_WELL = dict.fromkeys(("database", "migrations", "broker", "streams"), "ok")


@pytest.fixture
def nowhere() -> Iterator[str]:
    """A Redis that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        yield f"redis://127.0.0.1:{silent.getsockname()[1]}/0"


async def probed(path: str = health.READY) -> tuple[int, Any]:
    """What a new process answers."""
    answer = await Health().answer(path, "GET")
    assert answer is not None
    return answer.status_code, json.loads(answer.content)


async def test_probes_need_neither_name_nor_credential(settings: LazySettings) -> None:
    settings.WHITENOISE_AUTOREFRESH = True
    settings.SECURE_SSL_REDIRECT = True
    async with serving(Application()) as port:
        for path, status in ((health.ALIVE, "ok"), (health.READY, "ready")):
            async with request(port, "GET", path, {"Host": "10.1.2.3"}) as answer:
                assert (answer.status, (await answer.json())["status"]) == (200, status)
                assert answer.headers["cache-control"] == "no-store"
        async with request(port, "POST", health.READY) as answer:
            assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")
            assert (await answer.json())["code"] == "method_not_allowed"


async def test_a_process_that_has_everything_is_ready() -> None:
    assert await probed() == (200, {"status": "ready", "checks": ALL_WELL})


@pytest.mark.parametrize("url", ["BROKER_URL", "STREAMS_URL"])
async def test_without_redis_it_serves_what_it_can(settings: LazySettings, nowhere: str, url: str) -> None:
    setattr(settings, url, nowhere)

    status, told = await probed()

    assert (status, told["status"]) == (200, "degraded")
    assert [name for name, found in told["checks"].items() if found != "ok"] == [url.partition("_")[0].lower()]
    assert "127.0.0.1" not in str(told)


async def test_without_its_migrations_it_is_not_ready_and_says_what_to_do() -> None:
    def forget() -> None:
        MigrationRecorder(connection).migration_qs.filter(app="chat").order_by("-id")[0].delete()

    def remember(name: str) -> None:
        MigrationRecorder(connection).record_applied("chat", name)

    newest = await rows.ask(lambda: MigrationRecorder(connection).migration_qs.filter(app="chat").latest("id").name)
    await rows.ask(forget)
    try:
        status, told = await probed()
    finally:
        await rows.ask(lambda: remember(newest))

    assert (status, told["status"]) == (503, "unready")
    assert told["checks"]["migrations"] == "1 not applied: run manage.py migrate"


async def test_with_the_migrations_of_the_next_release_it_stays_ready() -> None:
    """They are applied first, while processes of this one serve."""
    await rows.ask(lambda: MigrationRecorder(connection).record_applied("chat", "9999_of_the_next_release"))
    try:
        status, told = await probed()
    finally:
        await rows.ask(lambda: MigrationRecorder(connection).record_unapplied("chat", "9999_of_the_next_release"))

    assert (status, told["status"]) == (200, "ready")


async def test_without_the_database_it_is_not_ready_and_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: BaseDatabaseWrapper) -> None:
        raise OperationalError("password authentication failed for user alice")

    monkeypatch.setattr(BaseDatabaseWrapper, "connect", refuse)

    status, told = await probed()

    assert (status, told["status"]) == (503, "unready")
    assert "OperationalError" in told["checks"]["database"]
    assert "alice" not in str(told)
    assert await probed(health.ALIVE) == (200, {"status": "ok"})


async def test_a_database_that_says_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "PATIENCE_S", 0.05)
    silence = asyncio.Event()
    looks = 0

    async def look(*_: object) -> None:
        nonlocal looks
        looks += 1
        await silence.wait()

    probes = Health()
    monkeypatch.setattr(asyncio.get_running_loop(), "run_in_executor", lambda *_: asyncio.ensure_future(look()))
    answers = await asyncio.gather(*(probes.answer(health.READY, "GET") for _ in range(3)))
    silence.set()

    assert [answer.status_code for answer in answers if answer] == [503] * 3
    assert looks == 1


async def test_a_process_that_stops_takes_no_more() -> None:
    probes = Health()
    probes.is_stopping = True

    answer = await probes.answer(health.READY, "GET")

    assert answer is not None
    assert answer.status_code == 503
