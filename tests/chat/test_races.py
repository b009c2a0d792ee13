"""Requests at the same moment: real transactions on real connections, one thread each."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.test import Client

from chat.finishing import finish_run
from chat.generation import claim_run
from chat.models import Chat, Message, Outcome, Run, RunTaken, Status, User
from scheduler.models import Model, Tier
from tests.acts import at_once, bearing

pytestmark = pytest.mark.django_db(transaction=True)
ROUNDS = 5
NewRun = Callable[..., Run]


def asking(client: Client, chat: Chat) -> Callable[[], int]:
    def act() -> int:
        question = {"content": "Hi"}
        return client.post(f"/api/chats/{chat.pk}/messages", question, content_type="application/json").status_code

    return act


def cancelling(client: Client, run: Run) -> Callable[[], int]:
    return lambda: client.post(f"/api/runs/{run.pk}/cancel").status_code


def retrying(client: Client, run: Run) -> Callable[[], int]:
    return lambda: client.post(f"/api/runs/{run.pk}/retry").status_code


def deleting(client: Client, chat: Chat) -> Callable[[], int]:
    return lambda: client.delete(f"/api/chats/{chat.pk}").status_code


def claiming(run: Run) -> Callable[[], int]:
    """1 when the worker gets it."""

    def act() -> int:
        try:
            claim_run(run.pk, "worker", timedelta(minutes=1))
        except RunTaken:
            return 0
        return 1

    return act


def finishing(run: Run) -> Callable[[], int]:
    """1 when it was the worker's to end."""
    ready = Run.objects.select_related("model", "prompt").get(pk=run.pk)
    return lambda: int(finish_run(ready, ready.attempt, Outcome(Status.DONE), "Hello", uuid4()))


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


def test_a_cancel_against_a_claim_ends_the_run_or_tells_its_worker(alice: User, new_run: NewRun) -> None:
    clients = [bearing(alice) for _ in range(3)]

    for _ in range(ROUNDS):
        run = new_run(in_chat=Chat.objects.create(owner=alice))
        statuses = at_once([claiming(run), *(cancelling(client, run) for client in clients)])
        row = Run.objects.get(pk=run.pk)
        assert row.cancel_requested_at
        if row.status == Status.CANCELLED:
            # Whoever came late found it ended.
            assert (statuses[0], row.attempt) == (0, 0)
            assert set(statuses[1:]) <= {200, 202}
        else:
            assert (statuses, row.attempt) == ([1, 202, 202, 202], 1)


def test_cancels_against_the_end_are_one_end(alice: User, new_run: NewRun) -> None:
    clients = [bearing(alice) for _ in range(2)]

    for _ in range(ROUNDS):
        run = new_run(Status.STREAMING, in_chat=Chat.objects.create(owner=alice))
        statuses = at_once([finishing(run), *(cancelling(client, run) for client in clients)])
        assert statuses[0] == 1
        assert set(statuses[1:]) <= {200, 202}
        assert Run.objects.get(pk=run.pk).status == Status.DONE


def test_cancels_of_a_run_whose_worker_is_gone_are_one_end(alice: User, new_run: NewRun) -> None:
    clients = [bearing(alice) for _ in range(4)]

    for _ in range(ROUNDS):
        run = new_run(Status.STREAMING, in_chat=Chat.objects.create(owner=alice))
        Run.objects.update(lease_until=Now() - timedelta(seconds=1))
        # Whoever comes second finds the first one at it.
        assert set(at_once([cancelling(client, run) for client in clients])) <= {200, 202}
        row = Run.objects.get(pk=run.pk)
        assert (row.status, row.attempt) == (Status.CANCELLED, 2)
        Run.objects.all().delete()


def test_a_delete_against_everything_else_leaves_nothing_behind(alice: User, new_run: NewRun) -> None:
    clients = [bearing(alice) for _ in range(5)]

    for status in (Status.QUEUED, Status.STREAMING) * ROUNDS:
        chat = Chat.objects.create(owner=alice)
        run = new_run(status, in_chat=chat)
        acts = [deleting(clients[0], chat), deleting(clients[1], chat), asking(clients[2], chat)]
        acts += [cancelling(clients[3], run), finishing(run) if status == Status.STREAMING else claiming(run)]
        statuses = at_once(acts)
        assert statuses.count(204) == 1
        assert set(statuses) <= {0, 1, 200, 202, 204, 404, 409}
        assert not Chat.objects.filter(pk=chat.pk).exists()
        assert not Run.objects.exists()
        assert not Message.objects.exists()


def test_two_retries_at_once_make_one_run(alice: User, new_run: NewRun) -> None:
    clients = [bearing(alice) for _ in range(3)]

    for _ in range(ROUNDS):
        run = new_run(Status.DONE, in_chat=Chat.objects.create(owner=alice))
        acts = [retrying(clients[0], run), retrying(clients[1], run), asking(clients[2], run.chat)]
        assert at_once(acts) == [202, 409, 409]
        assert run.chat.runs.live().count() == 1
        Run.objects.all().delete()


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
