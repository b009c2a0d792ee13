"""Postgres away or silent: waits end, and pages say when to come back."""

from __future__ import annotations

import os

import psycopg
import pytest
from django.db import OperationalError, connection
from django.http import HttpResponse
from django.test import Client, RequestFactory

from chat import pages
from chat.api.middleware import server_error
from chatsite.database.absence import Absence
from chatsite.database.deadline import DeadlinedConnection


def test_a_page_says_when_to_come_back(as_operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def lose(*_: object) -> None:
        raise OperationalError("connection lost")

    monkeypatch.setattr(pages, "_frame", lose)

    answer = as_operator.get("/")

    assert answer.status_code == 503
    assert "Back in a moment" in answer.content.decode()
    assert int(answer.headers["Retry-After"]) > 0
    assert answer.headers["Content-Security-Policy"]


@pytest.mark.parametrize(("path", "said"), [("/sign-in", "Back in a moment"), ("/api/chats", "database_unavailable")])
def test_what_is_lost_outside_of_views_is_no_bug_of_ours(path: str, said: str) -> None:
    answer = answered_for(OperationalError("a session was not stored"), path)

    assert answer.status_code == 503
    assert said in answer.content.decode()


def test_a_bug_is_still_one() -> None:
    assert answered_for(ValueError(), "/sign-in").status_code == 500


def answered_for(error: Exception, path: str) -> HttpResponse:
    """As Django asks its handler500: while the error is being handled."""

    def fail() -> None:
        raise error

    try:
        fail()
    except (OperationalError, ValueError):
        return server_error(RequestFactory().get(path))
    raise AssertionError


def test_a_statement_without_an_answer_ends_with_its_connection() -> None:
    with DeadlinedConnection.connect(os.environ["DATABASE_URL"], autocommit=True) as silent:
        silent.patience_s = 0.2
        with pytest.raises(psycopg.OperationalError, match="silent"):
            silent.execute("SELECT pg_sleep(60)")

        assert silent.closed


def test_what_the_server_refuses_costs_no_connection() -> None:
    with DeadlinedConnection.connect(os.environ["DATABASE_URL"], autocommit=True) as refused:
        refused.execute("SET statement_timeout = 100")
        with pytest.raises(psycopg.errors.QueryCanceled):
            refused.execute("SELECT pg_sleep(60)")

        assert not refused.closed


def test_a_migration_takes_as_long_as_it_takes(transactional_db: None) -> None:
    with connection.schema_editor():
        assert connection.connection.patience_s is None

    assert connection.connection.patience_s == DeadlinedConnection.patience_s


def test_while_the_server_is_away_not_everybody_waits_for_it() -> None:
    absence = Absence()
    assert [absence.may_look(), absence.may_look()] == [True, True]

    absence.begin()
    assert not absence.may_look()

    absence.end()
    assert absence.may_look()
