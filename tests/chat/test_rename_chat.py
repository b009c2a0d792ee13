"""PATCH /api/chats/{id}"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from django.test import Client

from chat.models import Chat, Run
from tests.acts import code_of

if TYPE_CHECKING:
    from django.test.client import _MonkeyPatchedWSGIResponse as Answer

Rename = Callable[..., "Answer"]


@pytest.fixture
def rename(as_alice: Client, chat: Chat) -> Rename:
    def patch(title: Any, by: Client = as_alice) -> Answer:
        return by.patch(f"/api/chats/{chat.pk}", {"title": title}, content_type="application/json")

    return patch


def test_a_chat_has_the_name_that_it_is_given(rename: Rename, chat: Chat, new_run: Callable[..., Run]) -> None:
    run = new_run()
    before = Chat.objects.get()

    answer = rename("  Fahrt nach Köln 🚂\n")

    assert answer.status_code == 200
    shown = answer.json()
    assert (shown["id"], shown["title"], shown["live_run_id"]) == (str(chat.pk), "Fahrt nach Köln 🚂", str(run.pk))
    renamed = Chat.objects.get()
    assert renamed.title == "Fahrt nach Köln 🚂"
    assert renamed.updated_at == before.updated_at  # to rename is no activity


@pytest.mark.parametrize("title", ["x" * 200, "👩‍👩‍👧‍👦", "می\u200cخواهم", "<b>&amp;</b>"])
def test_any_line_of_text_is_a_title(rename: Rename, title: str) -> None:
    assert rename(title).json()["title"] == title


@pytest.mark.parametrize(
    ("title", "code"),
    [
        ("", "title_blank"),
        (" \t\n\u3000", "title_blank"),
        ("x" * 201, "title_too_long"),
        ("a\0b", "title_invalid"),
        ("a\ud800b", "title_invalid"),
        ("a\nb", "title_invalid"),
        ("a\x1bb", "title_invalid"),
        ("a\u2028b", "title_invalid"),
        (None, "title_missing"),
        (7, "title_not_text"),
        (["x"], "title_not_text"),
    ],
)
def test_anything_else_is_refused_and_the_name_stays(rename: Rename, chat: Chat, title: Any, code: str) -> None:
    rename("Before")

    answer = rename(title)

    assert (answer.status_code, code_of(answer)) == (400, code)
    assert answer.json()["field"] == "title"
    assert Chat.objects.get().title == "Before"


@pytest.mark.parametrize(("body", "code"), [({}, "title_missing"), ([], "body_not_object")])
def test_a_body_without_a_title_is_refused(as_alice: Client, chat: Chat, body: Any, code: str) -> None:
    answer = as_alice.patch(f"/api/chats/{chat.pk}", body, content_type="application/json")

    assert (answer.status_code, code_of(answer)) == (400, code)


def test_somebody_elses_chat_is_not_found(rename: Rename, as_bob: Client, chat: Chat) -> None:
    assert code_of(rename("Mine", by=as_bob)) == "not_found"
    assert Chat.objects.get().title == ""


def test_an_unknown_chat_is_not_found(as_alice: Client) -> None:
    answer = as_alice.patch(f"/api/chats/{uuid4()}", {"title": "x"}, content_type="application/json")

    assert code_of(answer) == "not_found"
