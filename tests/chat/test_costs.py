"""What each act of a run's life costs in statements, commands and round trips: a change here is meant, or a mistake."""

from __future__ import annotations

import pytest
from django.test import Client

from chat.models import Chat, User
from scheduler.models import Model
from tests.metering import metered

pytestmark = pytest.mark.django_db(transaction=True)


def post(client: Client, chat: Chat) -> None:
    answer = client.post(f"/api/chats/{chat.pk}/messages", {"content": "Hi"}, content_type="application/json")
    assert answer.status_code == 202


def test_one_post(alice: User, as_alice: Client, model: Model, monkeypatch: pytest.MonkeyPatch):
    chats = [Chat.objects.create(owner=alice) for _ in range(2)]
    post(as_alice, chats[0])  # opens connections, loads the tokenizer and the script

    with metered(monkeypatch) as costs:
        post(as_alice, chats[1])

    assert costs.verbs == [
        "SELECT",  # the key, its user and tier
        "SELECT",  # the chat
        "SELECT",  # the model
        "SELECT",  # may this be asked at all?
        "SELECT",  # the history
        "BEGIN",
        "SELECT",  # the user's lock
        "SELECT",  # may this be asked, for sure?
        "INSERT",  # the message
        "UPDATE",  # the chat's activity
        "INSERT",  # the run
        "COMMIT",
        "UPDATE",  # released
    ]
    assert costs.commands == ["EVALSHA", "LPUSH"]  # through its room; to its queue
    assert costs.round_trips == 2
