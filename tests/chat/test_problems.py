"""What goes wrong is told as application/problem+json, and nothing of our inside with it."""

from __future__ import annotations

import pytest
from django.conf import LazySettings
from django.db import OperationalError
from django.test import Client

from chat.api import paging
from chat.models import User
from tests.acts import bearing, code_of


@pytest.mark.parametrize("path", ["/api/", "/api/nothing", "/api/chats/", "/api/chats/7", "/api/runs"])
@pytest.mark.parametrize("debug", [True, False])
def test_an_unknown_address_is_not_found(as_alice: Client, settings: LazySettings, path: str, debug: bool) -> None:
    settings.DEBUG = debug

    for method in ("get", "post", "delete"):
        answer = getattr(as_alice, method)(path)
        assert (answer.status_code, code_of(answer)) == (404, "not_found")


@pytest.mark.parametrize("method", ["post", "put", "delete"])
def test_an_unknown_address_asks_nobody_for_a_csrf_token(method: str) -> None:
    answer = getattr(Client(enforce_csrf_checks=True), method)("/api/nothing")

    assert (answer.status_code, code_of(answer)) == (404, "not_found")


def test_a_wrong_method_is_told_which_are_right(as_alice: Client) -> None:
    answer = as_alice.delete("/api/chats")

    assert (answer.status_code, code_of(answer)) == (405, "method_not_allowed")
    assert answer.headers["Allow"] == "GET, POST, HEAD, OPTIONS"


def test_what_is_not_json_cannot_be_had(as_alice: Client) -> None:
    answer = as_alice.get("/api/chats", headers={"Accept": "text/html"})

    assert (answer.status_code, code_of(answer)) == (406, "not_acceptable")


@pytest.mark.parametrize("debug", [True, False])
def test_a_bug_is_logged_with_its_inside_and_told_without(
    alice: User, settings: LazySettings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, debug: bool
) -> None:
    def break_down(*_: object) -> None:
        raise ZeroDivisionError("the inside")

    settings.DEBUG = debug
    monkeypatch.setattr(paging, "chats", break_down)
    client = bearing(alice)
    client.raise_request_exception = False

    answer = client.get("/api/chats")

    assert (answer.status_code, code_of(answer)) == (500, "internal_error")
    assert "inside" not in answer.content.decode()
    assert "the inside" in caplog.text


def test_a_database_that_is_away_is_told_to_try_again(as_alice: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def lose(*_: object) -> None:
        raise OperationalError("connection lost")

    monkeypatch.setattr(paging, "chats", lose)

    answer = as_alice.get("/api/chats")

    assert (answer.status_code, code_of(answer)) == (503, "database_unavailable")
    assert int(answer.headers["Retry-After"]) > 0


def test_a_page_that_is_unknown_outside_of_the_api_is_no_problem_json(client: Client, db: None) -> None:
    assert client.get("/nothing").headers["Content-Type"].startswith("text/html")


def test_what_is_answered_may_load_nothing_from_elsewhere(client: Client, db: None) -> None:
    policy = client.get("/admin/login/").headers["Content-Security-Policy"]

    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
