"""Chats as files: all that stands in them, for their owner alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from http import HTTPStatus

import pytest
from django.test import Client
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from chat.models import Chat, Role, Run, Status, User
from tests.acts import A_DETAIL, add_message

pytestmark = pytest.mark.django_db(transaction=True)

NewRun = Callable[..., Run]
ODD = "x\r\n\n## You\n\n<script>alert(1)</script> \u202e *سلام* 你好 `" + "`" * 3


@pytest.fixture
def browser(alice: User) -> Client:
    """Alice's, signed in."""
    client = Client()
    client.force_login(alice)
    return client


def exported(browser: Client, chat: Chat, suffix: str) -> str:
    """The file."""
    answer = browser.get(f"/chats/{chat.pk}/export.{suffix}")
    assert answer.status_code == HTTPStatus.OK, answer
    return answer.content.decode()


def test_a_file_for_people_has_the_messages_word_for_word(browser: Client, chat: Chat) -> None:
    Chat.objects.filter(pk=chat.pk).update(title="A talk")
    add_message(chat, Role.USER, ODD)
    add_message(chat, Role.ASSISTANT, "Yes.")

    assert exported(browser, chat, "md") == f"# A talk\n\n## You\n\n{ODD}\n\n## Palaver\n\nYes.\n"


def test_it_says_how_a_run_ended_that_left_no_answer(browser: Client, chat: Chat, new_run: NewRun) -> None:
    new_run(Status.FAILED, text="Why?")

    assert exported(browser, chat, "md").endswith(f"## You\n\nWhy?\n\n*{A_DETAIL}*\n")


def test_a_file_for_programs(browser: Client, chat: Chat, new_run: NewRun) -> None:
    run = new_run(Status.DONE, text=ODD)

    told = json.loads(exported(browser, chat, "json"))

    assert (told["id"], told["title"], parse_datetime(told["created_at"])) == (str(chat.pk), "", chat.created_at)
    question, answer = told["messages"]
    assert (question["role"], question["content"], question["model"]) == ("user", ODD, None)
    assert (answer["role"], answer["id"], answer["model"]) == ("assistant", str(run.answer_id), run.model_id)


@pytest.mark.parametrize("suffix", ["md", "json"])
def test_what_was_replaced_is_not_in_it(browser: Client, chat: Chat, suffix: str) -> None:
    add_message(chat, Role.USER, "Why?")
    old = add_message(chat, Role.ASSISTANT, "An old answer")
    chat.messages.filter(pk=old.pk).update(replaced_at=timezone.now())

    assert "An old answer" not in exported(browser, chat, suffix)


@pytest.mark.parametrize(
    ("title", "name"),
    [("A talk / of two", "a-talk-of-two.md"), ("", "chat.md"), ("سلام", "%D8%B3%D9%84%D8%A7%D9%85.md")],
)
def test_the_file_is_called_as_the_chat_is(browser: Client, chat: Chat, title: str, name: str) -> None:
    Chat.objects.filter(pk=chat.pk).update(title=title)

    headers = browser.get(f"/chats/{chat.pk}/export.md").headers

    assert headers["Content-Disposition"].startswith("attachment; ")
    assert name in headers["Content-Disposition"]
    assert headers["Content-Type"] == "text/markdown; charset=utf-8"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "no-store" in headers["Cache-Control"]


@pytest.mark.parametrize("suffix", ["md", "json"])
def test_somebody_elses_is_not_there(bob: User, chat: Chat, suffix: str) -> None:
    client = Client()
    client.force_login(bob)

    assert client.get(f"/chats/{chat.pk}/export.{suffix}").status_code == HTTPStatus.NOT_FOUND
    assert Client().get(f"/chats/{chat.pk}/export.{suffix}").status_code == HTTPStatus.FOUND
