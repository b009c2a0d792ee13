"""Whose request it is: by key, by session."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.db.models.functions import Now
from django.test import Client, RequestFactory
from pytest_django import DjangoAssertNumQueries

from chat.api.authentication import authenticate
from chat.models import ApiKey, Chat, User
from chat.problems import NotAuthenticated
from tests.acts import code_of

if TYPE_CHECKING:
    from django.test.client import _MonkeyPatchedWSGIResponse as Answer


@pytest.fixture
def secret(alice: User) -> str:
    return ApiKey.objects.issue(alice, "laptop")[1]


def get(secret: str, scheme: str = "Bearer") -> Answer:
    return Client(headers={"Authorization": f"{scheme} {secret}"}).get("/api/chats")


def test_a_key_opens_whatever_the_case_of_its_scheme(secret: str) -> None:
    assert get(secret).status_code == 200
    assert get(secret, scheme="bearer").status_code == 200


def test_no_credential_is_told_how_to_bring_one(client: Client, db: None) -> None:
    answer = client.get("/api/chats")

    assert (answer.status_code, code_of(answer)) == (401, "not_authenticated")
    assert answer.headers["WWW-Authenticate"] == 'Bearer realm="palaver"'


@pytest.mark.parametrize("wrong", ["", "pal_", "nonsense", "pal_" + "x" * 43, "\xe9", "a b"])
def test_a_wrong_key_opens_nothing(alice: User, wrong: str) -> None:
    answer = get(wrong)

    assert (answer.status_code, code_of(answer)) == (401, "not_authenticated")


@pytest.mark.parametrize("change", [{"revoked_at": Now()}, {"expires_at": Now() - timedelta(seconds=1)}])
def test_a_key_that_is_revoked_or_expired_opens_nothing(secret: str, change: dict[str, Any]) -> None:
    ApiKey.objects.update(**change)

    assert get(secret).status_code == 401


def test_a_key_that_expires_later_opens(secret: str) -> None:
    ApiKey.objects.update(expires_at=Now() + timedelta(hours=1))

    assert get(secret).status_code == 200


def test_a_wrong_key_is_refused_even_beside_a_session(alice: User) -> None:
    client = Client(headers={"Authorization": "Bearer nonsense"})
    client.force_login(alice)

    assert client.get("/api/chats").status_code == 401


def test_only_a_keys_digest_is_stored(secret: str) -> None:
    key = ApiKey.objects.get()

    assert secret not in str(vars(key))
    assert secret.startswith(key.shown)
    assert len(secret) - len(key.shown) >= 32


def test_a_session_reads_and_writes_with_its_csrf_token_only(alice: User) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(alice)
    assert client.get("/api/chats").status_code == 200

    answer = client.post("/api/chats", {}, content_type="application/json")
    assert (answer.status_code, code_of(answer)) == (403, "csrf_failed")

    token = "x" * 32
    client.cookies["csrftoken"] = token
    answer = client.post("/api/chats", {}, content_type="application/json", headers={"X-CSRFToken": token})
    assert answer.status_code == 201
    assert Chat.objects.get().owner == alice


def test_a_key_needs_no_csrf_token(secret: str) -> None:
    client = Client(enforce_csrf_checks=True, headers={"Authorization": f"Bearer {secret}"})

    assert client.post("/api/chats", {}, content_type="application/json").status_code == 201


def test_outside_of_drf_a_key_takes_one_query(
    secret: str, alice: User, rf: RequestFactory, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    request = rf.get("/", headers={"Authorization": f"Bearer {secret}"})

    with django_assert_num_queries(2):
        authenticate(request)  # its use is noted, once a minute
    with django_assert_num_queries(1):
        user = authenticate(request).user
        assert (user, user.tier.slug) == (alice, "free")


def test_outside_of_drf_a_session_opens_too(alice: User, client: Client, rf: RequestFactory) -> None:
    request = rf.get("/")
    client.force_login(alice)
    request.session = client.session

    assert authenticate(request).user == alice


def test_outside_of_drf_nobody_is_refused(client: Client, rf: RequestFactory, db: None) -> None:
    request = rf.get("/")
    request.session = client.session

    with pytest.raises(NotAuthenticated):
        authenticate(request)
