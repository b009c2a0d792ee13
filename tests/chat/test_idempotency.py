"""`Idempotency-Key`: whatever is sent twice with the same one is done once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Event
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from django.db import connection, connections
from django.db.models.functions import Now
from django.test import Client

from chat import services
from chat.models import ApiKey, Chat, IdempotencyKey, KeyLost, Message, Run, Status, User
from chat.models.idempotency import IN_FLIGHT, KEPT
from chat.submission import Submission
from chatsite.settings import BASE_DIR
from scheduler.models import Model
from tests.acts import at_once, bearing, code_of

if TYPE_CHECKING:
    from django.test.client import _MonkeyPatchedWSGIResponse as Answer

NewRun = Callable[..., Run]
A_SECOND = timedelta(seconds=1)


def post(client: Client, address: str, body: Any, key: str = "a key") -> Answer:
    headers = {"Idempotency-Key": key}
    return client.post(address, json.dumps(body), content_type="application/json", headers=headers)


def ask(client: Client, chat: Chat, content: str = "Hi", key: str = "a key") -> Answer:
    return post(client, f"/api/chats/{chat.pk}/messages", {"content": content}, key)


def asking(client: Client, chat: Chat, key: str) -> Callable[[], int]:
    return lambda: ask(client, chat, key=key).status_code


def opening(client: Client) -> Callable[[], int]:
    return lambda: post(client, "/api/chats", {}).status_code


def is_replayed(answer: Answer) -> bool:
    return answer.headers.get("Idempotent-Replayed") == "true"


def taken(user: User, **columns: Any) -> IdempotencyKey:
    """A key that a request of the user's holds."""
    key = IdempotencyKey(user=user, key="a key", fingerprint="f" * 64, **columns)
    assert IdempotencyKey.objects.take(key)
    return key


def age(by: timedelta) -> None:
    IdempotencyKey.objects.update(created_at=Now() - by)


def test_a_question_sent_again_is_one_run_with_the_same_answer(as_alice: Client, chat: Chat, model: Model) -> None:
    first = ask(as_alice, chat)
    second = ask(as_alice, chat)

    assert (first.status_code, second.status_code) == (202, 202)
    assert first.json() == second.json()
    assert (is_replayed(first), is_replayed(second)) == (False, True)
    assert (chat.runs.count(), chat.messages.count()) == (1, 1)


def test_it_is_answered_so_after_the_run_has_ended_too(as_alice: Client, chat: Chat, model: Model) -> None:
    first = ask(as_alice, chat)
    Run.objects.cancel_queued(first.json()["run_id"])
    Model.objects.update(is_active=False)  # what would be refused now was not then

    assert ask(as_alice, chat).json() == first.json()
    assert chat.runs.count() == 1


def test_a_chat_opened_again_is_that_chat_as_it_is_now(as_alice: Client) -> None:
    first = post(as_alice, "/api/chats", {})
    Chat.objects.update(title="Renamed")
    second = post(as_alice, "/api/chats", {})

    assert (second.status_code, is_replayed(second)) == (201, True)
    assert second.json() == {**first.json(), "title": "Renamed"}
    assert Chat.objects.count() == 1


def test_a_retry_sent_again_is_one_run(as_alice: Client, new_run: NewRun, chat: Chat) -> None:
    address = f"/api/runs/{new_run(Status.DONE).pk}/retry"
    first = post(as_alice, address, {})
    second = as_alice.generic("POST", address, headers={"Idempotency-Key": "a key"})  # no body is an empty one

    assert (first.status_code, second.status_code) == (202, 202)
    assert first.json() == second.json()
    assert is_replayed(second)
    assert chat.runs.count() == 2


def test_another_key_or_none_is_another_request(as_alice: Client) -> None:
    made = [post(as_alice, "/api/chats", {}, key).json()["id"] for key in ("one", "One", "one.")]
    made += [as_alice.generic("POST", "/api/chats").json()["id"] for _ in range(2)]

    assert len(set(made)) == 5
    assert IdempotencyKey.objects.count() == 3


def test_how_the_body_is_written_makes_no_difference(as_alice: Client, chat: Chat, model: Model) -> None:
    address, headers = f"/api/chats/{chat.pk}/messages", {"Idempotency-Key": "a key"}
    bodies = ('{"content":"Grüße","model":null}', '{ "model": null, "content": "Gr\\u00fc\\u00dfe" }')
    answers = [as_alice.post(address, body, content_type="application/json", headers=headers) for body in bodies]

    assert [answer.status_code for answer in answers] == [202, 202]
    assert is_replayed(answers[1])


def test_a_key_that_came_with_another_request_is_refused(
    as_alice: Client, alice: User, chat: Chat, model: Model
) -> None:
    ask(as_alice, chat)
    others = [
        ask(as_alice, chat, "Ho"),
        ask(as_alice, Chat.objects.create(owner=alice)),
        post(as_alice, "/api/chats", {}),
    ]

    for other in others:
        assert (other.status_code, code_of(other)) == (422, "idempotency_key_reused")
    assert (Run.objects.count(), Chat.objects.count()) == (1, 2)


def test_the_same_key_of_another_user_is_another_key(as_alice: Client, as_bob: Client, bob: User) -> None:
    hers, his = post(as_alice, "/api/chats", {}), post(as_bob, "/api/chats", {})

    assert not is_replayed(his)
    assert hers.json()["id"] != his.json()["id"]
    assert Chat.objects.get(pk=his.json()["id"]).owner == bob


def test_what_was_refused_may_go_through_with_the_same_key(as_alice: Client, chat: Chat, new_run: NewRun) -> None:
    live = new_run()
    refused = ask(as_alice, chat)
    assert (refused.status_code, code_of(refused)) == (409, "chat_busy")
    assert not IdempotencyKey.objects.exists()
    Run.objects.cancel_queued(live.pk)

    again = ask(as_alice, chat)

    assert (again.status_code, is_replayed(again)) == (202, False)


def test_a_refused_question_may_be_mended_under_the_same_key(as_alice: Client, chat: Chat, model: Model) -> None:
    assert ask(as_alice, chat, " ").status_code == 400

    assert ask(as_alice, chat, "Hi").status_code == 202


def test_a_bug_gives_the_key_back(alice: User, chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_down(*_: object) -> None:
        raise ZeroDivisionError

    client = bearing(alice)
    client.raise_request_exception = False
    with monkeypatch.context() as patched:
        patched.setattr(services, "open_chat", break_down)
        assert post(client, "/api/chats", {}).status_code == 500

    assert post(client, "/api/chats", {}).status_code == 201


def test_what_broke_after_it_was_stored_was_done(alice: User, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_down(*_: object) -> None:
        raise ZeroDivisionError

    client = bearing(alice)
    client.raise_request_exception = False
    with monkeypatch.context() as patched:
        patched.setattr("chat.api.views._opened", break_down)
        assert post(client, "/api/chats", {}).status_code == 500

    answer = post(client, "/api/chats", {})

    assert is_replayed(answer)
    assert answer.json()["id"] == str(Chat.objects.get().pk)


def test_what_was_made_and_is_deleted_is_gone(as_alice: Client, chat: Chat, model: Model) -> None:
    ask(as_alice, chat)
    opened = post(as_alice, "/api/chats", {}, "another").json()["id"]
    for one in (chat.pk, opened):
        assert as_alice.delete(f"/api/chats/{one}").status_code == 204

    for answer in (ask(as_alice, chat), post(as_alice, "/api/chats", {}, "another")):
        assert (answer.status_code, code_of(answer)) == (404, "not_found")
    assert not Chat.objects.exists()


def test_a_key_is_known_for_a_day_and_then_swept(as_alice: Client, alice: User) -> None:
    post(as_alice, "/api/chats", {})
    age(KEPT - A_SECOND * 10)
    assert is_replayed(post(as_alice, "/api/chats", {}))
    assert not IdempotencyKey.objects.expired().exists()

    age(KEPT + A_SECOND)

    assert IdempotencyKey.objects.expired().count() == 1
    assert not is_replayed(post(as_alice, "/api/chats", {}))
    assert Chat.objects.count() == 2
    assert not IdempotencyKey.objects.expired().exists()


def test_a_body_of_any_depth_that_is_read_can_be_told_from_others(as_alice: Client, chat: Chat, model: Model) -> None:
    for depth in range(850, 1001, 3):
        body = f'{{"content": "", "more": {"[" * depth}{"]" * depth}}}'
        address, headers = f"/api/chats/{chat.pk}/messages", {"Idempotency-Key": "a key"}
        answer = as_alice.post(address, body, content_type="application/json", headers=headers)
        assert (answer.status_code, code_of(answer) in {"content_blank", "body_not_json"}) == (400, True)


def test_while_the_first_is_in_flight_others_are_told_to_wait(as_alice: Client, alice: User) -> None:
    post(as_alice, "/api/chats", {})
    IdempotencyKey.objects.update(made=None)

    answer = post(as_alice, "/api/chats", {})

    assert (answer.status_code, code_of(answer)) == (409, "idempotency_in_flight")
    assert int(answer.headers["Retry-After"]) > 0
    assert post(as_alice, "/api/chats", {"another": "body"}).status_code == 422
    assert Chat.objects.count() == 1


def test_a_key_whose_request_died_in_flight_is_taken_over(as_alice: Client, alice: User) -> None:
    taken(alice)
    age(IN_FLIGHT + A_SECOND)

    assert post(as_alice, "/api/chats", {}).status_code == 201
    assert is_replayed(post(as_alice, "/api/chats", {}))
    assert Chat.objects.count() == 1


def test_who_lost_its_key_stores_nothing_and_takes_nothing_back(alice: User, chat: Chat, model: Model) -> None:
    slow = taken(alice)
    age(IN_FLIGHT + A_SECOND)
    fast = taken(alice)

    for act in (
        lambda: services.open_chat(alice, slow),
        lambda: services.ask(alice, chat, services.Question("Hi", model), slow),
    ):
        with pytest.raises(KeyLost):
            act()
    slow.release()

    assert (Chat.objects.count(), Run.objects.count(), Message.objects.count()) == (1, 0, 0)
    run = services.ask(alice, chat, services.Question("Hi", model), fast)
    assert IdempotencyKey.objects.get().made == run.pk


def test_a_request_that_was_too_slow_is_told_that_another_has_its_key(
    as_alice: Client, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_chat = services.open_chat

    def slowly(user: User, key: IdempotencyKey | None, origin: Chat | None) -> Chat:
        age(IN_FLIGHT + A_SECOND)
        taken(alice)
        return open_chat(user, key, origin)

    monkeypatch.setattr(services, "open_chat", slowly)
    answer = post(as_alice, "/api/chats", {})

    assert (answer.status_code, code_of(answer)) == (409, "idempotency_in_flight")
    assert not Chat.objects.exists()
    assert IdempotencyKey.objects.get().made is None


@pytest.mark.django_db(transaction=True)
def test_the_same_question_many_times_at_once_is_one_run(alice: User, model: Model) -> None:
    clients = [bearing(alice) for _ in range(6)]

    for turn in range(5):
        chat = Chat.objects.create(owner=alice)
        statuses = at_once([asking(client, chat, str(turn)) for client in clients])
        assert 202 in statuses
        assert set(statuses) <= {202, 409}
        assert (chat.runs.count(), chat.messages.count()) == (1, 1)
        again = ask(clients[0], chat, key=str(turn))
        assert (is_replayed(again), again.json()["run_id"]) == (True, str(chat.runs.get().pk))
        Run.objects.cancel_queued(chat.runs.get().pk)


@pytest.mark.django_db(transaction=True)
def test_a_key_left_behind_is_taken_over_by_one_of_many(alice: User) -> None:
    clients = [bearing(alice) for _ in range(6)]
    taken(alice)
    age(IN_FLIGHT + A_SECOND)

    statuses = at_once([opening(client) for client in clients])

    assert 201 in statuses
    assert set(statuses) <= {201, 409}
    assert Chat.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_a_question_that_is_still_tokenised_is_in_flight(
    alice: User, chat: Chat, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenising, go_on, tokenise = Event(), Event(), services._submission

    def slowly(*args: Any) -> Submission:
        tokenising.set()
        assert go_on.wait(30)
        return tokenise(*args)

    def first() -> Answer:
        try:
            return ask(bearing(alice), chat)
        finally:
            connections.close_all()

    monkeypatch.setattr(services, "_submission", slowly)
    client = bearing(alice)
    with ThreadPoolExecutor(1) as thread:
        answer = thread.submit(first)
        assert tokenising.wait(30)
        meanwhile = ask(client, chat)
        go_on.set()

    assert (meanwhile.status_code, code_of(meanwhile)) == (409, "idempotency_in_flight")
    assert answer.result().status_code == 202
    assert ask(client, chat).json() == answer.result().json()


# Asks in a process that kills itself where it comes to the function named first.
DYING = """
import os, signal, sys
from importlib import import_module
import django
django.setup()
from django.test import Client
module, name, secret, address = sys.argv[1:]
setattr(import_module(module), name, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
client = Client(headers={"Authorization": f"Bearer {secret}", "Idempotency-Key": "a key"}, SERVER_NAME="127.0.0.1")
print(client.post(address, {"content": "Hi"}, content_type="application/json").content)
"""


def ask_and_die(chat: Chat, at: str) -> None:
    url = urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{connection.settings_dict['NAME']}").geturl()
    environment = {**os.environ, "DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "chatsite.settings"}
    secret = ApiKey.objects.issue(chat.owner, "dying")[1]
    command = [sys.executable, "-c", DYING, *at.rsplit(".", 1), secret, f"/api/chats/{chat.pk}/messages"]
    done = subprocess.run(
        command, env=environment, cwd=BASE_DIR, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr


@pytest.mark.django_db(transaction=True)
def test_killed_before_its_run_was_stored_a_request_is_begun_anew(as_alice: Client, chat: Chat, model: Model) -> None:
    ask_and_die(chat, at="chat.submission.insert")
    assert not Run.objects.exists()
    assert ask(as_alice, chat).status_code == 409

    age(IN_FLIGHT + A_SECOND)

    answer = ask(as_alice, chat)
    assert (answer.status_code, is_replayed(answer)) == (202, False)
    assert Run.objects.count() == Message.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_killed_after_its_run_was_stored_a_request_is_answered_with_that_run(
    as_alice: Client, chat: Chat, model: Model
) -> None:
    ask_and_die(chat, at="chat.announcements.queued")
    run = Run.objects.get()

    answer = ask(as_alice, chat)

    assert (answer.status_code, is_replayed(answer)) == (202, True)
    assert answer.json()["run_id"] == str(run.pk)
    assert Run.objects.count() == Message.objects.count() == 1
