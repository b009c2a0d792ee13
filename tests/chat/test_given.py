"""Settings that cannot be meant are refused at the start, by name; and no password is sent in clear or told."""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
from collections.abc import Callable
from io import StringIO
from typing import cast

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.db import connection
from kombu import Connection
from redis import Redis

from chat.management.commands import migrate
from chatsite.given import Given
from launcher.places import ROOT

env = Given()
Read = Callable[[], object]


@pytest.mark.parametrize(
    ("given", "read"),
    [
        *((text, lambda: env.whole("WISH", 5)) for text in ("0", "-1", "1.5", "many", "nan", "")),
        *((text, lambda: env.seconds("WISH", 5, least=1)) for text in ("0", "-5", "nan", "inf", "soon", "")),
        *((text, lambda: env.switch("WISH", default=False)) for text in ("maybe", "ture", "2")),
        ("loud", lambda: env.level("WISH", "INFO")),
        ("", lambda: env.text("WISH")),
        *((text, lambda: env.postgres("WISH")) for text in ("nonsense", "redis://x", "postgres://host", "mysql://a/b")),
        *((text, lambda: env.redis("WISH", may_be_cluster=True)) for text in ("", "http://x", "redis+clsuter://x")),
        ("redis+cluster://:hidden#x@127.0.0.1:7000", lambda: env.redis("WISH", may_be_cluster=True)),
        ("redis+cluster://h:7000/3", lambda: env.redis("WISH", may_be_cluster=True)),
        ("redis+cluster://h:7000", lambda: env.redis("WISH", may_be_cluster=False)),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, given: str, read: Read) -> None:
    monkeypatch.setenv("WISH", given)
    with pytest.raises(ImproperlyConfigured, match=r"^WISH") as refused:
        read()
    assert "hidden" not in str(refused.value)
    assert refused.value.__suppress_context__ or refused.value.__context__ is None


def test_what_is_meant_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    assert env.whole("WISH", 5) == 5
    assert env.switch("WISH", default=True)
    monkeypatch.setenv("WISH", "Off")
    assert not env.switch("WISH", default=True)
    monkeypatch.setenv("WISH", "")  # as of a compose file's ${WISH:-}
    assert env.switch("WISH", default=True)
    assert env.level("WISH", "INFO") == "INFO"
    monkeypatch.setenv("WISH", "warning")
    assert env.level("WISH", "INFO") == "WARNING"
    monkeypatch.setenv("WISH", "0")
    assert env.whole("WISH", 5, least=0) == 0
    monkeypatch.setenv("WISH", "unix:///run/valkey.sock?db=1")
    assert env.redis("WISH", may_be_cluster=True) == "unix:///run/valkey.sock?db=1"
    monkeypatch.setenv("WISH", "2.5")
    assert env.seconds("WISH", 5, least=1) == 2.5
    monkeypatch.setenv("WISH", "postgres://ada:pass@db:5432/palaver?sslmode=verify-full")
    assert env.postgres("WISH")["OPTIONS"] == {"sslmode": "verify-full"}


@pytest.mark.parametrize(
    "command",
    ["manage.py check", "-m chatsite.serve --port 0", "-m inference.worker --model default --worker-name w"],
)
def test_a_process_that_ends_for_it_says_so_in_one_line(command: str) -> None:
    environ = {**os.environ, "HTTPS": "ture", "PALAVER_STATE": "/nowhere"}
    told = subprocess.run(
        [sys.executable, *command.split()],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (told.returncode, told.stdout) == (1, "")
    assert told.stderr == "HTTPS must be true or false, not 'ture'\n"


@pytest.mark.parametrize("url", ["rediss://:hidden@broker:6379/0", "rediss://:hidden@broker:6379/0?ssl_ca_certs=/ca"])
def test_over_tls_celery_speaks_tls_and_checks_who_is_there(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("WISH", url)
    taken = env.redis("WISH", may_be_cluster=False)

    assert cast(dict[str, object], Connection(taken).ssl)["ssl_cert_reqs"] == ssl.CERT_REQUIRED
    assert Redis.from_url(taken).connection_pool.connection_kwargs["ssl_cert_reqs"] == "required"


@pytest.mark.django_db(transaction=True)
def test_a_migration_waits_for_one_that_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    other, told = connection.copy(), StringIO()

    def end(_pause_s: float) -> None:
        with other.cursor() as cursor:
            cursor.execute(migrate.UNLOCK, [migrate.LOCK])

    monkeypatch.setattr("time.sleep", end)
    with other.cursor() as cursor:
        cursor.execute(migrate.TRY_LOCK, [migrate.LOCK])
    call_command("migrate", stdout=StringIO(), stderr=told)

    other.close()

    assert told.getvalue().count("waits for it") == 1
