"""GET /api/chats/{id}/messages"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from chat.models import Chat, Role, Run, Status
from scheduler.models import Model
from tests.acts import add_message, code_of

NewRun = Callable[..., Run]


def pages(client: Client, address: str) -> list[list[str]]:
    """The contents, page by page, until there is no next."""
    found = []
    following: str | None = address
    while following:
        answer = client.get(following).json()
        found.append([message["content"] for message in answer["results"]])
        following = answer["next"]
    return found


def test_a_page_is_in_reading_order_and_the_newest_comes_first(as_alice: Client, chat: Chat) -> None:
    for number in range(1, 8):
        add_message(chat, Role.USER, str(number))

    found = pages(as_alice, f"/api/chats/{chat.pk}/messages?limit=3")

    assert found == [["5", "6", "7"], ["2", "3", "4"], ["1"]]


def test_a_list_that_fills_its_last_page_ends_there(as_alice: Client, chat: Chat) -> None:
    for number in range(4):
        add_message(chat, Role.USER, str(number))

    assert len(pages(as_alice, f"/api/chats/{chat.pk}/messages?limit=2")) == 2


def test_messages_that_come_meanwhile_move_no_page(as_alice: Client, chat: Chat) -> None:
    for number in range(1, 5):
        add_message(chat, Role.USER, str(number))
    first = as_alice.get(f"/api/chats/{chat.pk}/messages?limit=2").json()
    add_message(chat, Role.ASSISTANT, "5")

    second = as_alice.get(first["next"]).json()

    assert [message["content"] for message in second["results"]] == ["1", "2"]


def test_each_message_tells_its_run(as_alice: Client, chat: Chat, new_run: NewRun) -> None:
    failed, done = new_run(Status.FAILED, text="First"), new_run(Status.DONE, text="Second")

    results = as_alice.get(f"/api/chats/{chat.pk}/messages").json()["results"]

    assert [(message["role"], message["content"], message["run"]) for message in results] == [
        ("user", "First", {"id": str(failed.pk), "status": "failed"}),
        ("user", "Second", {"id": str(done.pk), "status": "done"}),
        ("assistant", "Hello", {"id": str(done.pk), "status": "done"}),
    ]


def test_a_question_that_was_asked_again_tells_its_latest_run(
    as_alice: Client, chat: Chat, new_run: NewRun, model: Model
) -> None:
    failed = new_run(Status.FAILED)
    again = Run.objects.create(
        chat=chat, prompt=failed.prompt, model=model, tier=failed.tier, input_tokens=3, max_output_tokens=9
    )

    (message,) = as_alice.get(f"/api/chats/{chat.pk}/messages").json()["results"]

    assert message["run"] == {"id": str(again.pk), "status": "queued"}


def test_an_answer_whose_question_is_on_an_older_page_still_tells_its_run(
    as_alice: Client, chat: Chat, new_run: NewRun
) -> None:
    done = new_run(Status.DONE)

    (message,) = as_alice.get(f"/api/chats/{chat.pk}/messages?limit=1").json()["results"]

    assert (message["role"], message["run"]["id"]) == ("assistant", str(done.pk))


def test_an_empty_chat_has_an_empty_page(as_alice: Client, chat: Chat) -> None:
    assert as_alice.get(f"/api/chats/{chat.pk}/messages").json() == {"results": [], "next": None}


@pytest.mark.parametrize("turns", [1, 15])
def test_it_takes_four_queries_however_many_messages(
    as_alice: Client, chat: Chat, new_run: NewRun, django_assert_num_queries: DjangoAssertNumQueries, turns: int
) -> None:
    for _ in range(turns):
        new_run(Status.DONE)

    with django_assert_num_queries(4):
        results = as_alice.get(f"/api/chats/{chat.pk}/messages").json()["results"]

    assert len(results) == 2 * turns


@pytest.mark.parametrize("limit", ["0", "-1", "101", "ten", "", "1.5", "9" * 30])
def test_a_limit_that_is_none_is_refused(as_alice: Client, chat: Chat, limit: str) -> None:
    answer = as_alice.get(f"/api/chats/{chat.pk}/messages?limit={limit}")

    assert (answer.status_code, code_of(answer)) == (400, "limit_invalid")


@pytest.mark.parametrize("cursor", ["x", "-1", "9" * 10, "9" * 100, "1.5", "%00", "٣"])
def test_a_cursor_that_is_none_of_ours_is_refused(as_alice: Client, chat: Chat, cursor: str) -> None:
    answer = as_alice.get(f"/api/chats/{chat.pk}/messages?cursor={cursor}")

    assert (answer.status_code, code_of(answer)) == (400, "cursor_invalid")


def test_messages_of_somebody_else_are_not_found(as_bob: Client, chat: Chat) -> None:
    answer = as_bob.get(f"/api/chats/{chat.pk}/messages")

    assert (answer.status_code, code_of(answer)) == (404, "not_found")
