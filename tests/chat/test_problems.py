"""What goes wrong is told as application/problem+json, and nothing of our inside with it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import NoReturn

import pytest
from django.conf import LazySettings
from django.db import OperationalError
from django.http import Http404
from django.test import Client

from chat.api import paging
from chat.api.errors import problem_of
from chat.models import User
from chatsite.log import SecurityInOneLine
from inference.tokens import TokensError
from scheduler.errors import BudgetExhausted, QueueFull, Refused, TooManyRequests, TooManyRuns
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


@pytest.mark.parametrize("accepted", ["text/html", "application/problem+json", "nonsense"])
def test_everything_is_json_whatever_is_accepted(as_alice: Client, client: Client, accepted: str) -> None:
    answer = as_alice.get("/api/chats?format=xml", headers={"Accept": accepted})
    refusal = client.get("/api/chats", headers={"Accept": accepted})

    assert (answer.status_code, answer.json()["results"]) == (200, [])
    assert (refusal.status_code, code_of(refusal)) == (401, "not_authenticated")


def test_no_cache_keeps_what_is_answered(as_alice: Client) -> None:
    assert {"private", "no-store"} <= set(as_alice.get("/api/usage").headers["Cache-Control"].split(", "))


def test_a_host_that_is_not_ours_is_refused_in_one_line(as_alice: Client, caplog: pytest.LogCaptureFixture) -> None:
    answer = as_alice.get("/api/chats", headers={"Host": "elsewhere.example"})

    assert (answer.status_code, code_of(answer)) == (400, "invalid")
    refused = [record for record in caplog.records if record.name.startswith("django.security")]
    assert refused
    assert all(SecurityInOneLine().filter(record) and not record.exc_info for record in refused)


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


def test_each_limit_has_a_title_of_its_own() -> None:
    refusals = [BudgetExhausted(timedelta(seconds=1), 5), TooManyRuns(2), TooManyRequests(1), QueueFull(1)]
    titles = [problem.title for problem in map(problem_of, refusals) if problem]

    assert titles == ["Budget exhausted", "Too many answers at once", "Too many requests", "Queue full"]


@pytest.mark.parametrize(
    ("refusal", "code"),
    [
        (BudgetExhausted(timedelta(seconds=1), 5), "budget_exhausted"),
        (TooManyRuns(2), "too_many_runs"),
        (TooManyRequests(1), "too_many_requests"),
        (QueueFull(1), "queue_full"),
    ],
)
def test_a_refusal_for_want_of_tokens_or_of_room_is_not_logged(
    as_alice: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, refusal: Refused, code: str
) -> None:
    monkeypatch.setattr(paging, "chats", raising(refusal))

    assert code_of(as_alice.get("/api/chats")) == code
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OperationalError("connection lost"), "Database unavailable: /api/chats"),
        (TokensError("broken"), "Model unusable: /api/chats"),
        (ZeroDivisionError(), "Internal error: /api/chats"),
        (Http404(), "Not found: /api/chats"),
    ],
)
def test_whatever_else_is_refused_is_logged(
    alice: User, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception, line: str
) -> None:
    monkeypatch.setattr(paging, "chats", raising(error))
    client = bearing(alice)
    client.raise_request_exception = False

    client.get("/api/chats")

    assert line in caplog.messages


def raising(error: Exception) -> Callable[..., NoReturn]:
    def give_up(*_: object) -> NoReturn:
        raise error

    return give_up


def test_a_page_that_is_unknown_outside_of_the_api_is_no_problem_json(client: Client, db: None) -> None:
    assert client.get("/nothing").headers["Content-Type"].startswith("text/html")


def test_what_is_answered_may_load_nothing_from_elsewhere(client: Client, db: None) -> None:
    policy = client.get("/admin/login/").headers["Content-Security-Policy"]

    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
