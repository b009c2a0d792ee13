"""DELETE /api/chats/{id}"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from django.test import Client
from pytest_django import DjangoCaptureOnCommitCallbacks
from redis import Redis
from redis.client import PubSub

from chat import queueing
from chat.models import TERMINAL, Chat, Run, Status, User
from inference.streams import Ended, EntryId
from scheduler.room import drain_key
from tests.acts import code_of, in_queue, last_entry

if TYPE_CHECKING:
    from django.test.client import _MonkeyPatchedWSGIResponse as Answer

NewRun = Callable[..., Run]
Delete = Callable[[Chat], "Answer"]


@pytest.fixture
def delete(as_alice: Client, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks) -> Delete:
    def act(chat: Chat) -> Answer:
        with django_capture_on_commit_callbacks(execute=True):
            return as_alice.delete(f"/api/chats/{chat.pk}")

    return act


def test_a_deleted_chat_is_gone_with_all_that_was_in_it(
    as_alice: Client,
    delete: Delete,
    new_run: NewRun,
    chat: Chat,
    bob: User,
) -> None:
    for status in TERMINAL:
        new_run(status)
    others = Chat.objects.create(owner=bob)
    kept = new_run(Status.DONE, in_chat=others)

    answer = delete(chat)

    assert (answer.status_code, answer.content) == (204, b"")
    assert code_of(as_alice.get(f"/api/chats/{chat.pk}")) == "not_found"
    assert list(Run.objects.all()) == [kept]
    assert others.messages.count() == 2
    assert code_of(as_alice.delete(f"/api/chats/{chat.pk}")) == "not_found"


def test_a_queued_run_of_a_deleted_chat_leaves_queue_and_readers(
    delete: Delete,
    new_run: NewRun,
    chat: Chat,
    broker: Redis,
    streams: Redis,
) -> None:
    run = new_run()
    queueing.admit(run)
    assert in_queue(broker, run) == [run.pk]

    delete(chat)

    assert in_queue(broker, run) == []
    assert last_entry(streams, run).id == EntryId.terminal(0)


def test_the_worker_and_the_readers_of_a_deleted_chat_are_told(
    delete: Delete,
    new_run: NewRun,
    chat: Chat,
    control: PubSub,
    streams: Redis,
) -> None:
    run = new_run(Status.STREAMING)

    delete(chat)

    heard = control.get_message(timeout=5)
    assert heard is not None
    assert heard["data"] == str(run.pk).encode()
    last = last_entry(streams, run)
    assert last.id == EntryId.terminal(2)  # above all that the worker may still write
    assert isinstance(last.event, Ended)
    assert last.event.status == "cancelled"


def test_the_room_hears_what_a_running_answer_of_a_deleted_chat_came_to(
    delete: Delete, new_run: NewRun, chat: Chat, broker: Redis
) -> None:
    run = new_run(Status.STREAMING)

    delete(chat)

    assert broker.hexists(drain_key(run.model_id), f"charge:{run.tier_id}")


def test_somebody_elses_chat_is_not_found_and_stays(as_bob: Client, chat: Chat) -> None:
    assert code_of(as_bob.delete(f"/api/chats/{chat.pk}")) == "not_found"
    assert Chat.objects.get() == chat


def test_a_user_whose_chat_was_deleted_may_ask_as_much_as_before(
    as_alice: Client, alice: User, delete: Delete, new_run: NewRun, chat: Chat
) -> None:
    other = Chat.objects.create(owner=alice)
    new_run()
    new_run(in_chat=other)
    question = {"content": "Hi"}
    third = Chat.objects.create(owner=alice)
    refusal = as_alice.post(f"/api/chats/{third.pk}/messages", question, content_type="application/json")
    assert code_of(refusal) == "too_many_runs"
    assert "cancel" in refusal.json()["detail"]

    delete(chat)

    answer = as_alice.post(f"/api/chats/{third.pk}/messages", question, content_type="application/json")
    assert answer.status_code == 202
