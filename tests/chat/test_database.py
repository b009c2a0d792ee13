"""What the server keeps for a process that is paused, is gone, or waits no longer: nothing for long."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from django.db import OperationalError, connection, connections, transaction
from psycopg_pool import ConnectionPool
from psycopg_pool.base import AttemptWithBackoff

pytestmark = pytest.mark.django_db(transaction=True)

LOCK = 0x7265766965
PATIENCE_S = 30


@pytest.fixture
def other() -> Iterator[psycopg.Connection[Any]]:
    """A session of somebody else's."""
    parameters = connection.get_connection_params() | {"cursor_factory": None}
    with psycopg.connect(**parameters, autocommit=True) as session:
        yield session


def our_session() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])


def until_ended(session: int, other: psycopg.Connection[Any]) -> None:
    give_up_at = time.monotonic() + PATIENCE_S
    while other.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", [session]).fetchone():
        assert time.monotonic() < give_up_at
        time.sleep(0.05)


@transaction.atomic
def sleep_in_a_transaction(other: psycopg.Connection[Any]) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET idle_in_transaction_session_timeout = '100ms'")
        until_ended(our_session(), other)
        cursor.execute("SELECT 1")


def test_a_transaction_whose_process_is_paused_is_ended(other: psycopg.Connection[Any]) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SHOW idle_in_transaction_session_timeout")
        assert cursor.fetchone() == ("30s",)

    with pytest.raises(OperationalError):
        sleep_in_a_transaction(other)


def test_a_statement_that_was_given_up_does_not_wait_on(other: psycopg.Connection[Any]) -> None:
    other.execute("SELECT pg_advisory_lock(%s)", [LOCK])
    session = our_session()
    assert connection.connection is not None
    connection.connection.patience_s = 0.2

    with pytest.raises(OperationalError), connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(%s)", [LOCK])
    connection.close()

    until_ended(session, other)


def test_of_connections_that_all_died_in_the_pool_one_is_met(
    other: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AttemptWithBackoff, "INITIAL_DELAY", 600.0)  # what a second one would cost
    gate = threading.Barrier(4)
    with ThreadPoolExecutor(4) as threads:
        sessions = set(threads.map(lambda _: lent_session(gate), range(4)))
    assert len(sessions) == 4
    connection.close()  # back to the pool
    for session in sessions:
        other.execute("SELECT pg_terminate_backend(%s)", [session])
        until_ended(session, other)

    assert our_session() not in sessions


def test_a_connection_that_is_well_is_lent_without_asking_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    our_session()
    connection.close()  # back to the pool
    asked: list[Any] = []
    monkeypatch.setattr(ConnectionPool, "check_connection", asked.append)

    our_session()

    assert not asked


def lent_session(gate: threading.Barrier) -> int:
    """A session that a thread had together with others, and gave back."""
    try:
        session = our_session()
        gate.wait(PATIENCE_S)
        return session
    finally:
        connections.close_all()
