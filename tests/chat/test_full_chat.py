"""A chat has so many questions and no more."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from chat import context
from chat.models import Chat, Role, Run, Status
from scheduler.models import Model, Tier
from tests.acts import add_message, code_of, everything_stored

if TYPE_CHECKING:
    from django.test.client import _MonkeyPatchedWSGIResponse as Answer

NewRun = Callable[..., Run]
Ask = Callable[..., "Answer"]


@pytest.fixture
def ask(as_alice: Client, chat: Chat, model: Model) -> Ask:
    def post(**headers: str) -> Answer:
        path = f"/api/chats/{chat.pk}/messages"
        return as_alice.post(path, {"content": "Hi"}, content_type="application/json", headers=headers)

    return post


@pytest.fixture
def two_questions(free: Tier) -> None:
    """As many as a chat may have."""
    Tier.objects.update(chat_turns=2)


def test_the_last_question_is_taken_and_the_next_refused(ask: Ask, two_questions: None, new_run: NewRun) -> None:
    new_run(Status.DONE)
    assert Run.objects.cancel_queued(ask().json()["run_id"])

    answer = ask()

    assert (answer.status_code, code_of(answer)) == (409, "chat_full")
    problem = answer.json()
    assert (problem["turns"], problem["limit"]) == (2, 2)
    said = "This chat has its 2 questions. Begin a new one: it goes on from this chat's summary."
    assert problem["detail"] == said


def test_a_refused_question_leaves_nothing_and_costs_no_tokenising(
    ask: Ask, two_questions: None, new_run: NewRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_run(Status.DONE)
    new_run(Status.DONE)
    monkeypatch.setattr(context, "for_question", None)  # whoever calls it fails
    before = everything_stored()

    assert code_of(ask()) == "chat_full"

    assert everything_stored() == before


def test_one_question_is_told_as_one(ask: Ask, free: Tier, new_run: NewRun) -> None:
    Tier.objects.update(chat_turns=1)
    new_run(Status.DONE)

    assert ask().json()["detail"].startswith("This chat has its 1 question. ")


def test_what_waiting_would_not_help_is_told_before_what_it_would(
    ask: Ask, chat: Chat, two_questions: None, new_run: NewRun, free: Tier
) -> None:
    for _ in range(2):
        new_run(Status.DONE)
        new_run(in_chat=Chat.objects.create(owner=chat.owner))
    Model.objects.update(queue_depth=1)

    assert code_of(ask()) == "chat_full"


def test_a_chat_with_more_than_the_limit_of_today_is_full_too(ask: Ask, chat: Chat, new_run: NewRun) -> None:
    for _ in range(3):
        new_run(Status.DONE)
    Tier.objects.update(chat_turns=1)

    problem = ask().json()

    assert (problem["code"], problem["turns"], problem["limit"]) == ("chat_full", 3, 1)


def test_questions_count_also_without_an_answer_and_neither_answers_nor_other_chats_do(
    ask: Ask, chat: Chat, new_run: NewRun, two_questions: None
) -> None:
    other = Chat.objects.create(owner=chat.owner)
    for _ in range(3):
        add_message(other, Role.USER, "Hi")
    new_run(Status.DONE)
    assert Run.objects.cancel_queued(ask().json()["run_id"])

    assert code_of(ask()) == "chat_full"


def test_a_retry_of_the_latest_question_is_no_new_one(
    as_alice: Client, two_questions: None, new_run: NewRun, ask: Ask
) -> None:
    new_run(Status.DONE)
    latest = new_run(Status.DONE)

    for _ in range(2):
        answer = as_alice.post(f"/api/runs/{latest.pk}/retry", {}, content_type="application/json")
        assert answer.status_code == 202
        assert Run.objects.cancel_queued(answer.json()["run_id"])
    assert code_of(ask()) == "chat_full"


def test_a_full_chat_is_read_renamed_and_deleted_as_any(
    as_alice: Client, chat: Chat, two_questions: None, new_run: NewRun
) -> None:
    for _ in range(3):
        new_run(Status.DONE)
    path = f"/api/chats/{chat.pk}"

    assert len(as_alice.get(f"{path}/messages").json()["results"]) == 6
    assert as_alice.patch(path, {"title": "Done"}, content_type="application/json").status_code == 200
    assert as_alice.delete(path).status_code == 204


def test_more_questions_are_taken_at_once_when_an_operator_allows_them(
    ask: Ask, two_questions: None, new_run: NewRun
) -> None:
    new_run(Status.DONE)
    new_run(Status.DONE)
    assert code_of(ask()) == "chat_full"

    Tier.objects.update(chat_turns=3)

    assert ask().status_code == 202


def test_a_question_that_another_tab_asks_meanwhile_counts(
    ask: Ask, chat: Chat, two_questions: None, new_run: NewRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_run(Status.DONE)
    tokenise = context.for_question

    def slowly(*args: Any) -> context.Prompt:
        prompt = tokenise(*args)
        new_run(Status.DONE)
        return prompt

    monkeypatch.setattr(context, "for_question", slowly)

    assert code_of(ask()) == "chat_full"
    assert chat.messages.filter(role=Role.USER).count() == 2


def test_the_answer_to_the_last_question_is_told_again_to_who_asks_with_its_key(
    ask: Ask, two_questions: None, new_run: NewRun
) -> None:
    new_run(Status.DONE)
    first = ask(**{"Idempotency-Key": "a key"})
    assert Run.objects.cancel_queued(first.json()["run_id"])

    again = ask(**{"Idempotency-Key": "a key"})

    assert (again.status_code, again.json()) == (202, first.json())
    assert code_of(ask(**{"Idempotency-Key": "another"})) == "chat_full"


def test_a_question_takes_no_more_queries_for_being_counted(ask: Ask, new_run: NewRun) -> None:
    new_run(Status.DONE)
    with CaptureQueriesContext(connection) as captured:
        assert ask().status_code == 202

    asked = [query["sql"] for query in captured if "role = 'user'" in query["sql"]]
    # Standing's own statement, before and under the lock; in a short queue once more.
    assert len(asked) <= 3
    assert all("json_object_agg" in sql for sql in asked)


@pytest.fixture
def page(chat: Chat) -> Callable[[], str]:
    """Alice's page of the chat, in a browser without scripts."""
    browser = Client()
    browser.force_login(chat.owner)

    def fetch() -> str:
        return browser.get(f"/chats/{chat.pk}").content.decode()

    return fetch


def tells_of_more(page: str) -> bool:
    """Whether it offers another chat in the composer's place."""
    [found] = re.findall(r'<section id="full"[^>]*?( hidden)?>\s*<p id="full-reason">([^<]*)</p>', page)
    is_marked = 'class="column composer-place full"' in page
    assert is_marked == (not found[0])
    assert unescape(found[1]) == "This chat has its 2 questions. Begin a new one: it goes on from this chat's summary."
    return not found[0]


def test_its_page_offers_a_new_one_once_the_last_question_is_answered(
    page: Callable[[], str], two_questions: None, new_run: NewRun
) -> None:
    new_run(Status.DONE)
    assert not tells_of_more(page())
    live = new_run()
    assert not tells_of_more(page())

    Run.objects.cancel_queued(live.pk)

    assert tells_of_more(page())


def test_a_full_chats_page_takes_no_more_queries_than_another(
    page: Callable[[], str], two_questions: None, new_run: NewRun
) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            page()
        return len(captured)

    new_run(Status.DONE)
    before = queries()
    new_run(Status.DONE)

    assert queries() == before
