"""API keys by API: made, listed, revoked, and what each is good for."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from chat import keyring, problems, throttles
from chat.models import ApiKey, Run, Scope, Status, User
from tests.acts import at_once

pytestmark = pytest.mark.django_db

KEYS = "/api/keys"
JSON = "application/json"

Program = Callable[..., Client]


@pytest.fixture
def program(alice: User) -> Program:
    """A client with a key of Alice's that has these scopes."""

    def make(*scopes: Scope) -> Client:
        _, secret = ApiKey.objects.issue(alice, "test", scopes=scopes)
        return Client(headers={"Authorization": f"Bearer {secret}"})

    return make


def made(client: Client, **wanted: Any) -> dict[str, Any]:
    """What is answered to a wish for a key."""
    answer = client.post(KEYS, {"name": "laptop", **wanted}, content_type=JSON)
    body: dict[str, Any] = answer.json()
    assert answer.status_code == 201, body
    return body


def problem(answer: Any) -> tuple[int, str]:
    """Its status and code."""
    return answer.status_code, answer.json()["code"]


def test_a_key_is_made_used_listed_and_revoked(signed_in: Client, client: Client) -> None:
    key = made(signed_in)
    secret = key.pop("secret")
    bearing = {"Authorization": f"Bearer {secret}"}

    assert client.get("/api/chats", headers=bearing).status_code == 200
    shown = signed_in.get(f"{KEYS}/{key['id']}").json()
    assert shown == key | {"last_used_at": shown["last_used_at"]}
    assert shown["last_used_at"]
    assert signed_in.get(KEYS).json() == {"results": [shown], "next": None}
    assert secret.startswith(key["shown"])
    assert (key["name"], key["scopes"], key["expires_at"]) == ("laptop", ["read", "write"], None)
    assert signed_in.delete(f"{KEYS}/{key['id']}").status_code == 204
    assert problem(client.get("/api/chats", headers=bearing)) == (401, "not_authenticated")
    assert signed_in.get(KEYS).json()["results"] == []
    assert problem(signed_in.delete(f"{KEYS}/{key['id']}")) == (404, "not_found")


def test_of_a_secret_only_its_digest_is_stored(signed_in: Client) -> None:
    secret = made(signed_in)["secret"]

    with connection.cursor() as cursor:
        cursor.execute("SELECT to_jsonb(chat_apikey)::text FROM chat_apikey")
        assert secret[12:] not in str(cursor.fetchall())


def test_what_a_key_may_do_are_its_scopes(program: Program, new_run: Callable[..., Run]) -> None:
    run = new_run(Status.DONE)
    reader, writer = program(Scope.READ), program(Scope.WRITE)

    assert reader.get("/api/chats").status_code == 200
    assert writer.post("/api/chats", {}, content_type=JSON).status_code == 201
    assert problem(reader.post("/api/chats", {}, content_type=JSON)) == (403, "scope_missing")
    assert reader.post("/api/chats", {}, content_type=JSON).json()["scope"] == "write"
    assert problem(writer.get("/api/chats")) == (403, "scope_missing")
    assert problem(writer.get(f"/api/runs/{run.pk}/stream")) == (403, "scope_missing")
    assert problem(program(Scope.READ, Scope.WRITE).get(KEYS)) == (403, "scope_missing")


def test_a_key_of_scope_admin_makes_keys_of_no_more_than_its_own(program: Program) -> None:
    manager = program(Scope.READ, Scope.WRITE, Scope.ADMIN)
    reading_manager = program(Scope.READ, Scope.ADMIN)

    assert made(manager, scopes=["admin"])["scopes"] == ["admin"]
    assert problem(reading_manager.post(KEYS, {"name": "x"}, content_type=JSON)) == (403, "scope_missing")


def test_a_scope_that_is_named_twice_is_kept_once(signed_in: Client) -> None:
    assert made(signed_in, scopes=["write", "read", "write"])["scopes"] == ["write", "read"]


def test_a_key_ends_when_it_was_said_to(signed_in: Client, client: Client) -> None:
    until = timezone.now() + timedelta(days=1)
    key = made(signed_in, expires_at=until.isoformat())
    ApiKey.objects.update(expires_at=timezone.now() - timedelta(seconds=1))

    answer = client.get("/api/chats", headers={"Authorization": f"Bearer {key['secret']}"})

    assert problem(answer) == (401, "not_authenticated")


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        ({}, "name_missing"),
        ({"name": " "}, "name_blank"),
        ({"name": 7}, "name_not_text"),
        ({"name": "x" * 65}, "name_too_long"),
        ({"name": "a\nb"}, "name_invalid"),
        ({"name": "x", "scopes": []}, "scopes_empty"),
        ({"name": "x", "scopes": "read"}, "scopes_not_a_list"),
        ({"name": "x", "scopes": ["root"]}, "scopes_invalid_choice"),
        ({"name": "x", "scopes": ["read", {}]}, "scopes_invalid_choice"),
        ({"name": "x", "expires_at": "soon"}, "expires_at_invalid"),
        ({"name": "x", "expires_at": "2020-01-01T00:00:00Z"}, "expires_at_past"),
        ({"name": "x", "expires_at": "9999-12-31T23:59:59-23:00"}, "expires_at_overflow"),
    ],
)
def test_what_is_no_wish_for_a_key_is_said(signed_in: Client, wanted: Mapping[str, Any], code: str) -> None:
    assert problem(signed_in.post(KEYS, wanted, content_type=JSON)) == (400, code)
    assert not ApiKey.objects.exists()


def test_a_user_has_so_many_keys(signed_in: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyring, "MAX_KEYS", 2)
    first, _ = made(signed_in), made(signed_in)

    assert problem(signed_in.post(KEYS, {"name": "x"}, content_type=JSON)) == (409, "too_many_keys")
    signed_in.delete(f"{KEYS}/{first['id']}")
    made(signed_in)


@pytest.mark.django_db(transaction=True)
def test_many_at_once_make_no_key_too_many(alice: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyring, "MAX_KEYS", 2)
    wanted = keyring.NewKey("laptop", [Scope.READ])
    issue = ApiKey.objects.issue

    def slowly(*args: Any) -> tuple[ApiKey, str]:
        time.sleep(0.1)  # between the count and the row
        return issue(*args)

    monkeypatch.setattr(type(ApiKey.objects), "issue", lambda _, *args: slowly(*args))

    def make() -> int:
        try:
            keyring.issue(alice, wanted)
        except problems.TooManyKeys as refusal:
            return int(refusal.status)
        return 201

    assert at_once([make] * 8) == [201] * 2 + [409] * 6


def test_keys_are_made_so_fast(signed_in: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttles, "NEW_KEYS_AN_HOUR", 2)
    made(signed_in)
    made(signed_in)

    answer = signed_in.post(KEYS, {"name": "x"}, content_type=JSON)

    assert problem(answer) == (429, "too_many_new_keys")
    assert int(answer.headers["Retry-After"]) > 60


def test_somebody_elses_key_is_not_revoked(signed_in: Client, bob: User) -> None:
    key, _ = ApiKey.objects.issue(bob, "his")

    assert problem(signed_in.delete(f"{KEYS}/{key.public_id}")) == (404, "not_found")
    assert problem(signed_in.delete(f"{KEYS}/{uuid4()}")) == (404, "not_found")
    assert ApiKey.objects.usable().get() == key


def test_its_last_use_is_kept_once_a_minute(program: Program) -> None:
    reader = program(Scope.READ)
    before = timezone.now()
    reader.get("/api/models")

    first = ApiKey.objects.get().last_used_at
    assert first
    assert first > before - timedelta(seconds=5)
    with CaptureQueriesContext(
        connection,
    ) as queries:
        reader.get("/api/models")
    assert not [query for query in queries if query["sql"].startswith("UPDATE")]
    ApiKey.objects.update(last_used_at=first - timedelta(minutes=2))
    reader.get("/api/models")
    latest = ApiKey.objects.get().last_used_at
    assert latest
    assert latest >= first
