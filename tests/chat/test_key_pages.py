"""`/keys`: API keys for people."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Any

import pytest
from django.test import Client

from chat import keyring
from chat.models import ApiKey

pytestmark = pytest.mark.django_db

FORM: dict[str, Any] = {"name": "laptop", "scopes": ["read"], "days": "30"}
SECRET = re.compile(r"pal_[\w-]{43}")


def test_a_key_is_made_shown_once_used_and_revoked(signed_in: Client, client: Client) -> None:
    made = signed_in.post("/keys", FORM)
    secret = SECRET.search(made.content.decode())
    assert secret
    bearing = {"Authorization": f"Bearer {secret[0]}"}

    assert made.status_code == HTTPStatus.CREATED
    assert "no-store" in made.headers["Cache-Control"]
    assert client.get("/api/chats", headers=bearing).status_code == HTTPStatus.OK
    assert client.post("/api/chats", headers=bearing).status_code == HTTPStatus.FORBIDDEN
    listed = signed_in.get("/keys").content.decode()
    assert "laptop" in listed
    assert not SECRET.search(listed)
    key = ApiKey.objects.get()
    assert key.expires_at
    assert signed_in.post(f"/keys/{key.public_id}/revoke").status_code == HTTPStatus.FOUND
    assert client.get("/api/chats", headers=bearing).status_code == HTTPStatus.UNAUTHORIZED
    assert "laptop" not in signed_in.get("/keys").content.decode()
    assert signed_in.post(f"/keys/{key.public_id}/revoke").status_code == HTTPStatus.NOT_FOUND


@pytest.mark.parametrize(
    "wrong",
    [
        *({"name": name} for name in ("", "x" * 65, "a\x00", "a\x07b")),
        *({"scopes": scopes} for scopes in ([], ["root"])),
        *({"days": days} for days in ("7", "soon")),
    ],
    ids=str,
)
def test_what_is_no_wish_for_a_key_is_said_beside_it(signed_in: Client, wrong: dict[str, Any]) -> None:
    answer = signed_in.post("/keys", FORM | wrong)

    assert answer.status_code == HTTPStatus.BAD_REQUEST
    assert 'class="error"' in answer.content.decode()
    assert not ApiKey.objects.exists()


def test_one_key_too_many_is_said(signed_in: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyring, "MAX_KEYS", 0)

    answer = signed_in.post("/keys", FORM)

    assert answer.status_code == HTTPStatus.CONFLICT
    assert "Revoke one that is not used any more." in answer.content.decode()


def test_a_name_is_text(signed_in: Client) -> None:
    answer = signed_in.post("/keys", FORM | {"name": "<b>x</b>"})

    assert "&lt;b&gt;x&lt;/b&gt;" in answer.content.decode()
