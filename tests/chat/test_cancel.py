"""POST /api/runs/{id}/cancel"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from django.conf import LazySettings
from django.test import Client
from redis import Redis
from redis.client import PubSub

from chat import queueing
from chat.models import Chat, Run, Status, User
from inference.streams import ENDED_TTL_S, Ended, EntryId, run_key
from scheduler.room import room_key
from tests.acts import code_of, in_queue, last_entry

if TYPE_CHECKING:
    from django.test.client import _MonkeyPatchedWSGIResponse as Answer

NewRun = Callable[..., Run]
TERMINAL = [Status.DONE, Status.CANCELLED, Status.FAILED]


@pytest.fixture
def cancel(as_alice: Client) -> Callable[[Run], Answer]:
    return lambda run: as_alice.post(f"/api/runs/{run.pk}/cancel")


def waiting(new_run: NewRun, chat: Chat, count: int) -> list[Run]:
    """Queued runs of Alice's in chats of their own, admitted in this order."""
    runs = [new_run(in_chat=Chat.objects.create(owner=chat.owner)) for _ in range(count)]
    for run in runs:
        queueing.admit(run)
    return runs


def test_a_queued_run_is_cancelled_at_once(cancel: Callable[[Run], Answer], new_run: NewRun) -> None:
    run = new_run()

    answer = cancel(run)

    assert answer.status_code == 202
    shown = answer.json()
    assert (shown["id"], shown["status"], shown["finish_reason"]) == (str(run.pk), "cancelled", "cancelled")
    assert shown["finished_at"]
    row = Run.objects.get()
    assert (row.status, row.attempt, row.answer, row.input_tokens) == (Status.CANCELLED, 0, None, run.input_tokens)


def test_its_readers_are_told_at_once(cancel: Callable[[Run], Answer], new_run: NewRun, streams: Redis) -> None:
    run = new_run()

    cancel(run)

    last = last_entry(streams, run)
    assert last.id == EntryId.terminal(0)
    assert isinstance(last.event, Ended)
    event = last.event
    assert (event.status, event.data["message_id"]) == ("cancelled", None)
    assert event.data["refunded_tokens"] == run.input_tokens + run.max_output_tokens
    assert 0 < streams.ttl(run_key(run.pk)) <= ENDED_TTL_S


def test_it_leaves_the_room(
    cancel: Callable[[Run], Answer], new_run: NewRun, chat: Chat, broker: Redis, settings: LazySettings
) -> None:
    settings.DISPATCH_LOOKAHEAD = 1
    queued, first, second = waiting(new_run, chat, 3)

    cancel(first)

    assert broker.zrange(room_key(first.model_id, "free"), 0, -1) == [str(second.pk).encode()]
    assert in_queue(broker, first) == [queued.pk]


def test_it_leaves_the_queue_to_the_next(
    cancel: Callable[[Run], Answer], new_run: NewRun, chat: Chat, broker: Redis, settings: LazySettings
) -> None:
    settings.DISPATCH_LOOKAHEAD = 2
    first, second, third = waiting(new_run, chat, 3)
    assert in_queue(broker, first) == [first.pk, second.pk]

    cancel(first)

    assert in_queue(broker, first) == [second.pk, third.pk]
    assert Run.objects.get(pk=third.pk).released_at


@pytest.mark.parametrize("server", ["BROKER_URL", "STREAMS_URL"])
def test_a_server_that_is_away_keeps_nobody_from_cancelling(
    cancel: Callable[[Run], Answer], new_run: NewRun, chat: Chat, settings: LazySettings, server: str
) -> None:
    setattr(settings, server, "redis://127.0.0.1:1/0")

    assert cancel(new_run()).status_code == 202
    assert cancel(new_run(Status.STREAMING, in_chat=Chat.objects.create(owner=chat.owner))).status_code == 202


def test_the_worker_of_a_streaming_run_is_told(
    cancel: Callable[[Run], Answer], new_run: NewRun, control: PubSub
) -> None:
    run = new_run(Status.STREAMING)

    answer = cancel(run)

    assert (answer.status_code, answer.json()["status"]) == (202, "streaming")
    heard = control.get_message(timeout=5)
    assert heard is not None
    assert heard["data"] == str(run.pk).encode()
    assert Run.objects.get().cancel_requested_at


def test_asking_again_is_telling_again(cancel: Callable[[Run], Answer], new_run: NewRun, control: PubSub) -> None:
    run = new_run(Status.STREAMING)
    cancel(run)
    asked_at = Run.objects.get().cancel_requested_at

    assert cancel(run).status_code == 202

    assert all(control.get_message(timeout=5) for _ in range(2))
    assert Run.objects.get().cancel_requested_at == asked_at


@pytest.mark.parametrize("status", TERMINAL, ids=lambda status: status.value)
def test_a_run_that_has_ended_stays_as_it_is(
    cancel: Callable[[Run], Answer], new_run: NewRun, status: Status, streams: Redis
) -> None:
    run = new_run(status)

    answer = cancel(run)

    assert (answer.status_code, answer.json()["status"]) == (200, status.value)
    assert Run.objects.get().finished_at == run.finished_at
    assert not streams.exists(run_key(run.pk))


def test_a_chat_whose_run_was_cancelled_takes_the_next_question(
    as_alice: Client, cancel: Callable[[Run], Answer], new_run: NewRun, chat: Chat
) -> None:
    path = f"/api/chats/{chat.pk}/messages"
    run = new_run(text="First")
    question = {"content": "Second"}
    refusal = as_alice.post(path, question, content_type="application/json")
    assert code_of(refusal) == "chat_busy"
    assert "cancel" in refusal.json()["detail"]
    cancel(run)

    assert as_alice.post(path, question, content_type="application/json").status_code == 202


def test_somebody_elses_run_is_not_found_and_goes_on(as_bob: Client, new_run: NewRun) -> None:
    answer = as_bob.post(f"/api/runs/{new_run().pk}/cancel")

    assert (answer.status_code, code_of(answer)) == (404, "not_found")
    assert Run.objects.get().status == Status.QUEUED


def test_an_unknown_run_is_not_found(as_alice: Client) -> None:
    assert code_of(as_alice.post(f"/api/runs/{uuid4()}/cancel")) == "not_found"


def test_a_session_needs_its_csrf_token(alice: User, new_run: NewRun) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(alice)

    assert code_of(client.post(f"/api/runs/{new_run().pk}/cancel")) == "csrf_failed"


def test_an_operator_cancels_what_is_live(as_operator: Client, new_run: NewRun, chat: Chat) -> None:
    statuses = (Status.QUEUED, Status.STREAMING, Status.DONE)
    runs = [new_run(status, in_chat=Chat.objects.create(owner=chat.owner)) for status in statuses]

    as_operator.post("/admin/chat/run/", {"action": "cancel", "_selected_action": [run.pk for run in runs]})

    found = [Run.objects.get(pk=run.pk) for run in runs]
    assert [run.status for run in found] == [Status.CANCELLED, Status.STREAMING, Status.DONE]
    assert [run.cancel_requested_at is not None for run in found] == [True, True, False]
