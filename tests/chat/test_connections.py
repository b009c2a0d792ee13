"""Whoever has been answered holds no database connection: with many clients at once others wait for it."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test import Client

from chat.models import Chat, User

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("path", ["chats", "chats/{chat}", "chats/{chat}/messages", "usage", "models"])
def test_a_view_of_the_api_gives_its_connection_back(path: str, as_alice: Client, chat: Chat) -> None:
    assert as_alice.get(f"/api/{path.format(chat=chat.pk)}").status_code == 200
    assert connection.connection is None


def test_a_refusal_gives_it_back_too(as_alice: Client) -> None:
    assert as_alice.get("/api/chats?limit=0").status_code == 400
    assert connection.connection is None


@pytest.mark.parametrize("path", ["/", "/chats/{chat}"])
def test_a_page_gives_its_connection_back(path: str, alice: User, client: Client, chat: Chat) -> None:
    client.force_login(alice)
    assert client.get(path.format(chat=chat.pk)).status_code == 200
    assert connection.connection is None
