"""Requests at the same moment: real transactions on real connections, one thread each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from django.db import connection, connections
from django.test import Client

from chat.models import Chat, Message, Run, User
from scheduler.models import Model, Tier
from tests.acts import bearing

pytestmark = pytest.mark.django_db(transaction=True)
ROUNDS = 5


def at_once(acts: Sequence[Callable[[], int]]) -> list[int]:
    """Run all acts at the same moment; what they return, sorted."""
    barrier = Barrier(len(acts))

    def run(act: Callable[[], int]) -> int:
        try:
            barrier.wait()
            return act()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(acts)) as threads:
        return sorted(threads.map(run, acts))


def asking(client: Client, chat: Chat) -> Callable[[], int]:
    def act() -> int:
        question = {"content": "Hi"}
        return client.post(f"/api/chats/{chat.pk}/messages", question, content_type="application/json").status_code

    return act


def test_two_questions_in_one_chat_at_once_make_one_run(alice: User, model: Model) -> None:
    clients = [bearing(alice) for _ in range(2)]

    for _ in range(ROUNDS):
        chat = Chat.objects.create(owner=alice)
        assert at_once([asking(client, chat) for client in clients]) == [202, 409]
        assert (chat.runs.count(), chat.messages.count()) == (1, 1)
        Run.objects.all().delete()


def test_questions_in_many_chats_at_once_make_as_many_runs_as_the_tier_allows(
    alice: User, model: Model, free: Tier
) -> None:
    clients = [bearing(alice) for _ in range(6)]

    for _ in range(ROUNDS):
        acts = [asking(client, Chat.objects.create(owner=alice)) for client in clients]
        assert at_once(acts) == [202] * free.concurrency + [429] * (6 - free.concurrency)
        assert Run.objects.live().count() == Message.objects.count() == free.concurrency
        Message.objects.all().delete()


def test_more_requests_than_the_pool_has_connections_wait_for_one(alice: User, model: Model) -> None:
    most = connection.settings_dict["OPTIONS"]["pool"]["max_size"]
    clients = [bearing(alice) for _ in range(3 * most)]
    chat = Chat.objects.create(owner=alice)

    def reading(client: Client) -> Callable[[], int]:
        return lambda: client.get(f"/api/chats/{chat.pk}/messages").status_code

    assert at_once([reading(client) for client in clients]) == [200] * len(clients)


def test_a_pool_that_stays_empty_is_told_to_try_again(alice: User, monkeypatch: pytest.MonkeyPatch) -> None:
    client = bearing(alice)
    pool = connection.pool  # type: ignore[attr-defined]  # Postgres has one
    monkeypatch.setattr(pool, "timeout", 0.1)
    taken = [pool.getconn(timeout=5) for _ in range(pool.max_size - 1)]  # this thread has the last one
    try:
        assert at_once([lambda: client.get("/api/chats").status_code]) == [503]
    finally:
        for one in taken:
            pool.putconn(one)

    assert at_once([lambda: client.get("/api/chats").status_code]) == [200]
