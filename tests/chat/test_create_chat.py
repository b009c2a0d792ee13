"""POST /api/chats"""

from __future__ import annotations

from uuid import UUID

from django.test import Client

from chat.models import Chat, User
from tests.acts import code_of


def test_a_chat_belongs_to_whoever_opened_it(as_alice: Client, alice: User) -> None:
    answer = as_alice.post("/api/chats", {}, content_type="application/json")

    assert answer.status_code == 201
    chat = Chat.objects.get()
    assert chat.owner == alice
    shown = answer.json()
    assert shown["id"] == str(chat.pk)
    assert shown["title"] == ""
    assert shown["live_run_id"] is None
    assert shown["created_at"].endswith("Z")


def test_its_id_is_a_uuid_of_version_7(as_alice: Client) -> None:
    answer = as_alice.post("/api/chats", {}, content_type="application/json")

    assert UUID(answer.json()["id"]).version == 7


def test_no_body_is_an_empty_one(as_alice: Client) -> None:
    assert as_alice.generic("POST", "/api/chats").status_code == 201


def test_an_owner_in_the_body_is_ignored(as_alice: Client, alice: User, bob: User) -> None:
    as_alice.post("/api/chats", {"owner": str(bob.pk), "owner_id": str(bob.pk)}, content_type="application/json")

    assert Chat.objects.get().owner == alice


def test_a_list_is_no_chat(as_alice: Client) -> None:
    answer = as_alice.post("/api/chats", [], content_type="application/json")

    assert (answer.status_code, code_of(answer)) == (400, "body_not_object")
    assert not Chat.objects.exists()


def test_without_a_credential_there_is_none(client: Client, db: None) -> None:
    answer = client.post("/api/chats", {}, content_type="application/json")

    assert (answer.status_code, code_of(answer)) == (401, "not_authenticated")
    assert not Chat.objects.exists()
