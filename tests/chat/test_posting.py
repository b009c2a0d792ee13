"""What people without scripts do by forms: they land on a page that shows what came of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import unescape
from http import HTTPStatus
from threading import Event, Thread
from types import SimpleNamespace
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from django.conf import LazySettings
from django.db import connections
from django.test import Client
from redis import Redis

from chat import cancelling, posting, services
from chat.models import Chat, IdempotencyKey, Message, Run, Status, User
from chat.sentences import SENTENCES
from scheduler.budgets import bucket_key
from scheduler.models import Model, Tier

if TYPE_CHECKING:
    from django.test.client import _MonkeyPatchedWSGIResponse as Answer

NewRun = Callable[..., Run]
REFRESH = '<meta http-equiv="refresh" content="3">'
BEING_WRITTEN = "The answer is being written."


def signed_in(user: User, **options: bool) -> Client:
    client = Client(**options)  # type: ignore[arg-type]  # a wrong one would fail
    client.force_login(user)
    return client


@pytest.fixture
def browser(alice: User) -> Client:
    """Alice's, signed in."""
    return signed_in(alice)


@pytest.fixture
def live_chat(chat: Chat, new_run: NewRun) -> Chat:
    """One that is being answered."""
    new_run(Status.STREAMING)
    return chat


def shown(browser: Client, address: str) -> str:
    answer = browser.get(address)
    assert answer.status_code == HTTPStatus.OK, answer
    return answer.content.decode()


def form_of(page: str) -> tuple[str, str]:
    """Where the page's form sends what is written, and its key."""
    action = re.search(r'<form id="composer"[^>]* action="([^"]+)"', page)
    key = re.search(r'name="key" value="([^"]+)"', page)
    assert action
    assert key
    return action[1], key[1]


def said(answer: Answer) -> tuple[int, str, str]:
    """How a question was refused: the status, the reason, and what is left in the form."""
    page = answer.content.decode()
    reason = re.search(r'id="refusal" class="refusal" >\s*<span id="refusal-reason" role="alert">([^<]*)<', page)
    left = re.search(r"<textarea[^>]*>\n([^<]*)</textarea>", page)
    assert reason
    assert left
    return answer.status_code, unescape(reason[1]), unescape(left[1])


def test_a_question_in_a_new_chat_lands_on_it(browser: Client, model: Model) -> None:
    action, key = form_of(shown(browser, "/"))

    answer = browser.post(action, {"key": key, "content": "Hi\r\nthere", "model": model.slug})

    run = Run.objects.get()
    assert answer.headers["Location"] == f"/chats/{run.chat_id}"
    assert (run.prompt.content, run.model) == ("Hi\nthere", model)


def test_a_question_in_a_chat_lands_on_it(browser: Client, chat: Chat, model: Model) -> None:
    action, key = form_of(shown(browser, f"/chats/{chat.pk}"))

    answer = browser.post(action, {"key": key, "content": "Hi"})

    assert (answer.status_code, answer.headers["Location"]) == (HTTPStatus.FOUND, f"/chats/{chat.pk}")
    assert Run.objects.get().prompt.content == "Hi"
    assert Chat.objects.get() == chat


def test_while_the_answer_is_being_written_the_page_says_so_and_fetches_itself_again(
    browser: Client, chat: Chat, new_run: NewRun
) -> None:
    new_run(Status.DONE)
    page = shown(browser, f"/chats/{chat.pk}")
    assert (BEING_WRITTEN in page, REFRESH in page) == (False, False)

    new_run(Status.STREAMING)
    page = shown(browser, f"/chats/{chat.pk}")
    assert BEING_WRITTEN in page
    assert re.search(rf"<noscript>\s*{REFRESH}\s*</noscript>", page.partition("</head>")[0])


@pytest.mark.parametrize("where", ["/ask", "/chats/{chat}/ask"])
def test_a_blank_question_is_refused_and_opens_no_chat(browser: Client, chat: Chat, model: Model, where: str) -> None:
    answer = browser.post(where.format(chat=chat.pk), {"key": "a key", "content": " \r\n "})

    assert said(answer) == (400, "Write something first.", " \n ")
    assert Chat.objects.count() == 1


def test_what_was_refused_is_kept_to_the_letter(
    browser: Client, chat: Chat, model: Model, settings: LazySettings
) -> None:
    settings.MAX_CONTENT_BYTES = 20
    text = "\n </textarea><b>é</b> &amp;\n"

    status, reason, left = said(browser.post(f"/chats/{chat.pk}/ask", {"key": "a key", "content": text}))

    assert (status, left) == (400, text)
    assert reason == "The message is too long: 1 KB, and 1 KB at most. Shorten it."


def test_a_chat_that_is_being_answered_takes_no_question_and_its_page_keeps_what_was_written(
    browser: Client, live_chat: Chat
) -> None:
    answer = browser.post(f"/chats/{live_chat.pk}/ask", {"key": "a key", "content": "Me too"})

    status, reason, left = said(answer)
    assert (status, left) == (409, "Me too")
    assert "still being answered" in reason
    assert REFRESH not in answer.content.decode()  # which would take it away


def test_who_has_no_budget_is_told_when_to_come_back(
    browser: Client, alice: User, model: Model, streams: Redis
) -> None:
    Tier.objects.update(budget_tokens=200, refill_tokens_per_hour=1)
    units = 3_600_000
    seconds, microseconds = streams.time()
    now_ms = seconds * 1000 + microseconds // 1000
    streams.hset(bucket_key(alice.pk), mapping={"missing": 200 * units, "at": now_ms})

    answer = browser.post("/ask", {"key": "a key", "content": "Hi"})

    status, reason, left = said(answer)
    assert (status, left) == (429, "Hi")
    assert "budget" in reason
    assert int(answer.headers["Retry-After"]) > 0
    # And the next try goes into the chat that was opened for it.
    assert form_of(answer.content.decode()) == (f"/chats/{Chat.objects.get().pk}/ask", "a key")


def test_the_model_that_was_picked_stays_picked(browser: Client, chat: Chat, model: Model) -> None:
    other = Model.objects.create(slug=f"{model.slug}-b", name="Other", source="x", context_window=2048)
    other.tiers.set([model.tiers.get(slug="free")])

    page = browser.post(f"/chats/{chat.pk}/ask", {"key": "k", "content": "", "model": other.slug}).content.decode()

    assert re.findall(r'<option value="([^"]+)"\s*selected', page) == [other.slug]


def test_a_model_that_is_not_open_is_refused(browser: Client, chat: Chat, model: Model) -> None:
    answer = browser.post(f"/chats/{chat.pk}/ask", {"key": "a key", "content": "Hi", "model": "none"})

    assert said(answer) == (400, str(SENTENCES["model_unknown"]), "Hi")


def test_forms_count_as_requests(browser: Client, chat: Chat, model: Model, settings: LazySettings) -> None:
    settings.REQUESTS_PER_MINUTE = 1
    posts = [browser.post(f"/chats/{chat.pk}/ask", {"key": "a key", "content": ""}) for _ in range(2)]

    assert [answer.status_code for answer in posts] == [400, 429]


@pytest.mark.parametrize("act", ["ask", "stop", "retry"])
def test_somebody_elses_chat_is_not_found(bob: User, chat: Chat, new_run: NewRun, act: str) -> None:
    run = new_run(Status.QUEUED)
    form = {"key": "a key", "content": "Hi", "run": str(run.pk)}
    browser = signed_in(bob)

    assert browser.post(f"/chats/{chat.pk}/{act}", form).status_code == HTTPStatus.NOT_FOUND
    assert browser.post(f"/chats/{uuid4()}/{act}", form).status_code == HTTPStatus.NOT_FOUND
    run.refresh_from_db()
    assert (run.status, Run.objects.count()) == (Status.QUEUED, 1)


@pytest.mark.parametrize("address", ["/ask", "/chats/{chat}/ask", "/chats/{chat}/stop", "/chats/{chat}/retry"])
def test_forms_need_their_token_and_a_session(alice: User, chat: Chat, model: Model, address: str) -> None:
    address = address.format(chat=chat.pk)
    strict = signed_in(alice, enforce_csrf_checks=True)

    assert strict.post(address, {"content": "Hi"}).status_code == HTTPStatus.FORBIDDEN
    page = f"/chats/{chat.pk}" if "chats" in address else "/"
    assert Client().post(address, {"content": "Hi"}).headers["Location"] == f"/sign-in?next={page}"
    assert strict.get(address).headers["Location"] == page  # a refusal stands at this address
    assert not Message.objects.exists()


@pytest.mark.parametrize("page", ["/", "/chats/{chat}"])
def test_send_pressed_twice_asks_once(browser: Client, chat: Chat, model: Model, page: str) -> None:
    action, key = form_of(shown(browser, page.format(chat=chat.pk)))

    answers = [browser.post(action, {"key": key, "content": "Hi"}) for _ in range(2)]

    address = f"/chats/{Run.objects.get().chat_id}"
    assert [answer.headers["Location"] for answer in answers] == [address] * 2
    assert Chat.objects.count() == (2 if page == "/" else 1)


def test_each_page_has_a_key_of_its_own_and_another_text_is_another_question(
    browser: Client, chat: Chat, new_run: NewRun
) -> None:
    address = f"/chats/{chat.pk}"
    assert form_of(shown(browser, address)) != form_of(shown(browser, address))
    action, key = form_of(shown(browser, address))
    browser.post(action, {"key": key, "content": "One"})
    cancelling.cancel(Run.objects.get())

    # From the same page, as Back shows it.
    browser.post(action, {"key": key, "content": "Two"})

    assert [run.prompt.content for run in Run.objects.order_by("pk")] == ["One", "Two"]


@contextmanager
def held_up(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Event, Event]]:
    """Questions wait, once they have their key, until the second event is set."""
    came, go = Event(), Event()
    ask = services.ask

    def late(user: User, chat: Chat, question: services.Question, key: IdempotencyKey | None = None) -> Run:
        came.set()
        assert go.wait(20)
        return ask(user, chat, question, key)

    monkeypatch.setattr(services, "ask", late)
    yield came, go
    go.set()


@pytest.mark.django_db(transaction=True)
def test_a_second_press_waits_for_what_the_first_makes(
    browser: Client, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    statuses: list[int] = []

    def press() -> None:
        statuses.append(browser.post("/ask", {"key": "a key", "content": "Hi"}).status_code)
        connections.close_all()

    with held_up(monkeypatch) as (came, go):
        first = Thread(target=press)

        def pause(_: float) -> None:
            go.set()
            first.join()

        monkeypatch.setattr(posting, "time", SimpleNamespace(sleep=pause))
        first.start()
        assert came.wait(20)
        press()

    assert statuses == [302, 302]
    assert (Run.objects.count(), Chat.objects.count()) == (1, 1)


@pytest.mark.django_db(transaction=True)
def test_where_the_first_takes_long_the_second_is_told_and_may_be_pressed_again(
    browser: Client, chat: Chat, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(posting, "PAUSES_S", (0.01,))

    def press() -> Answer:
        return browser.post(f"/chats/{chat.pk}/ask", {"key": "a key", "content": "Hi"})

    def press_first() -> None:
        press()
        connections.close_all()

    with held_up(monkeypatch) as (came, go):
        first = Thread(target=press_first)
        first.start()
        assert came.wait(20)
        second = press()
        go.set()
        first.join()

    status, _, left = said(second)
    assert (status, left) == (409, "Hi")
    assert form_of(second.content.decode())[1] == "a key"
    assert press().status_code == HTTPStatus.FOUND
    assert Run.objects.count() == 1


def test_stop_ends_the_answer_and_the_latest_question_can_be_answered_again_once(
    browser: Client, chat: Chat, new_run: NewRun
) -> None:
    run = new_run(Status.QUEUED)
    assert browser.post(f"/chats/{chat.pk}/stop").headers["Location"] == f"/chats/{chat.pk}"
    run.refresh_from_db()
    assert run.status == Status.CANCELLED
    assert browser.post(f"/chats/{chat.pk}/stop").status_code == HTTPStatus.FOUND
    named = re.search(r'name="run" value="([^"]+)"', shown(browser, f"/chats/{chat.pk}"))
    assert named

    for _ in range(2):
        answer = browser.post(f"/chats/{chat.pk}/retry", {"run": named[1]})
        assert answer.headers["Location"] == f"/chats/{chat.pk}"
        browser.post(f"/chats/{chat.pk}/stop")

    assert [each.prompt for each in Run.objects.all()] == [run.prompt] * 2


def test_a_refused_retry_says_why(browser: Client, chat: Chat, new_run: NewRun) -> None:
    run = new_run(Status.CANCELLED)
    run.model.tiers.clear()

    status, reason, _ = said(browser.post(f"/chats/{chat.pk}/retry", {"run": str(run.pk)}))

    assert (status, reason) == (400, str(SENTENCES["model_unknown"]))
