"""The pages as the server makes them: who may see them, what they show, what they say of caching and markup."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from http import HTTPStatus
from uuid import uuid4

import pytest
from django.test import Client
from django.utils import timezone

from chat.models import Chat, Role, Run, Status, User
from chat.pages import CHATS_A_PAGE, MESSAGES_A_PAGE
from scheduler.models import Model, Tier
from tests.acts import A_DETAIL, add_message

NewRun = Callable[..., Run]


@pytest.fixture
def browser(alice: User) -> Client:
    """Alice's, signed in."""
    client = Client()
    client.force_login(alice)
    return client


def shown(browser: Client, address: str) -> str:
    """The page at an address."""
    answer = browser.get(address)
    assert answer.status_code == HTTPStatus.OK, answer
    return answer.content.decode()


def texts(page: str) -> list[str]:
    """The messages on a page, in order."""
    found = re.findall(r'class="text(?: markup)?" dir="auto">(.*?)</div>', page, re.DOTALL)
    return [unescape(re.sub("<[^>]*>", "", text)).strip() for text in found if text]  # the template has none


def labels(page: str) -> list[str]:
    """The chats listed on a page, in order."""
    return [unescape(label) for label in re.findall(r'class="label" dir="auto">([^<]*)<', page)]


def link(page: str, element_id: str) -> str | None:
    """Where the link of that id leads."""
    found = re.search(rf'id="{element_id}"[^>]* href="([^"]+)"', page)
    return unescape(found[1]) if found else None


def tail(page: str) -> tuple[str, bool]:
    """What is said below the last message, and whether Retry is offered."""
    note = re.search(r'id="tail-note"[^>]*>([^<]*)<', page)
    retry = re.search(r'<button id="retry"[^>]*>', page)
    assert note
    assert retry
    return unescape(note[1]), "hidden" not in retry[0]


def test_who_is_not_signed_in_is_asked_to(chat: Chat) -> None:
    for address in ("/", f"/chats/{chat.pk}"):
        assert Client().get(address).headers["Location"] == f"/sign-in?next={address}"


def test_somebody_elses_chat_and_one_that_never_was_get_the_same_page(bob: User, chat: Chat) -> None:
    browser = Client()
    browser.force_login(bob)

    answers = [browser.get(f"/chats/{chat_id}") for chat_id in (chat.pk, uuid4())]

    assert [answer.status_code for answer in answers] == [HTTPStatus.NOT_FOUND] * 2
    assert answers[0].content == answers[1].content
    assert "Nothing here" in answers[0].content.decode()


@pytest.mark.parametrize("address", ["/?cursor=x", "/chats/{chat}?cursor=-1"])
def test_a_mangled_cursor_is_no_page(browser: Client, chat: Chat, address: str) -> None:
    assert browser.get(address.format(chat=chat.pk)).status_code == HTTPStatus.NOT_FOUND


def test_no_cache_keeps_a_page(browser: Client, chat: Chat) -> None:
    for address in ("/", f"/chats/{chat.pk}"):
        assert {"private", "no-store"} <= set(browser.get(address).headers["Cache-Control"].split(", "))


def test_nothing_is_inline_and_everything_comes_from_this_site(browser: Client, chat: Chat, new_run: NewRun) -> None:
    new_run(Status.DONE)
    for address in ("/", f"/chats/{chat.pk}", "/sign-in", "/nowhere"):
        answer = browser.get(address, follow=True)
        page = answer.content.decode()
        assert not re.findall(r"<style|\sstyle=|\son\w+=|javascript:", page)
        assert not re.findall(r'(?:src|href)="(?:https?:)?//', page)
        for attributes in re.findall(r"<script ([^>]*)>", page):
            nonce = re.fullmatch(r'type="importmap" nonce="([\w+/=-]+)"', attributes)
            is_data = attributes.endswith(' type="application/json"')  # which nothing runs
            assert attributes.startswith(('type="module" src="/static/', 'defer src="/words.js')) or nonce or is_data
            assert nonce is None or f"'nonce-{nonce[1]}'" in answer["Content-Security-Policy"]


def test_what_was_written_is_shown_as_text(browser: Client, chat: Chat, new_run: NewRun) -> None:
    hostile = '<script>alert("x")</script> <img src=x onerror=alert(1)> &amp;'
    chat.title = hostile
    chat.save()
    new_run(Status.DONE, text=hostile, answer=hostile)

    page = shown(browser, f"/chats/{chat.pk}")

    assert texts(page) == [hostile, unescape(hostile)]  # an entity in Markdown is its character
    assert labels(page) == [hostile]
    assert "<img" not in page


def test_chats_are_listed_by_page_and_a_link_leads_to_older_ones(browser: Client, alice: User) -> None:
    for number in range(CHATS_A_PAGE + 2):
        Chat.objects.create(owner=alice, title=f"Chat {number}", updated_at=timezone.now())

    first = shown(browser, "/")
    older = link(first, "older")
    assert older
    second = shown(browser, older)

    assert labels(first) + labels(second) == [f"Chat {number}" for number in reversed(range(CHATS_A_PAGE + 2))]
    assert link(second, "older") is None


def test_a_chat_without_a_title_is_known_by_how_it_begins(browser: Client, chat: Chat) -> None:
    add_message(chat, Role.USER, "  Why is the sky blue? " + "Tell me more. " * 20)
    add_message(chat, Role.ASSISTANT, "Rayleigh")

    (label,) = labels(shown(browser, "/"))
    assert label.startswith("Why is the sky blue? Tell")
    assert label.endswith("…")
    assert len(label) <= Chat.LABEL_CHARS


def test_a_chat_that_nothing_was_said_in_is_listed_once_it_has_a_title(browser: Client, chat: Chat) -> None:
    assert labels(shown(browser, "/")) == []

    chat.title = "Plans"
    chat.save()

    assert labels(shown(browser, "/")) == ["Plans"]


def test_the_newest_messages_are_shown_and_a_link_leads_to_earlier_ones(browser: Client, chat: Chat) -> None:
    for number in range(MESSAGES_A_PAGE + 3):
        add_message(chat, (Role.USER, Role.ASSISTANT)[number % 2], f"Message {number}")

    first = shown(browser, f"/chats/{chat.pk}")
    earlier = link(first, "earlier")
    assert earlier
    second = shown(browser, earlier)

    assert texts(second) + texts(first) == [f"Message {number}" for number in range(MESSAGES_A_PAGE + 3)]
    assert link(second, "earlier") is None
    assert 'id="composer"' not in second


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (Status.QUEUED, ("", False)),
        (Status.STREAMING, ("", False)),
        (Status.DONE, ("", True)),
        (Status.CANCELLED, ("Stopped.", True)),
        (Status.FAILED, (A_DETAIL, True)),
    ],
)
def test_below_the_last_message_stands_how_its_run_ended(
    browser: Client, chat: Chat, new_run: NewRun, status: Status, said: tuple[str, bool]
) -> None:
    run = new_run(status)

    page = shown(browser, f"/chats/{chat.pk}")

    assert tail(page) == said
    live = re.search(r'data-live-run="([^"]+)"', page)
    assert (live[1] if live else None) == (str(run.pk) if status in (Status.QUEUED, Status.STREAMING) else None)


def test_what_would_fail_again_is_not_offered_again(browser: Client, chat: Chat, new_run: NewRun) -> None:
    run = new_run(Status.FAILED)
    Run.objects.filter(pk=run.pk).update(error_code="prompt_rejected")

    assert tail(shown(browser, f"/chats/{chat.pk}")) == (A_DETAIL, False)


def test_further_up_a_question_without_an_answer_says_why(browser: Client, chat: Chat, new_run: NewRun) -> None:
    new_run(Status.FAILED, text="One")
    new_run(Status.CANCELLED, text="Two")
    new_run(Status.DONE, text="Three", answer="Four")

    page = shown(browser, f"/chats/{chat.pk}")

    notes = re.findall(r'(?:auto">|<p dir="auto">)(\w+)(?:</p>\n)?</div>\s*<p class="note" ([a-z]*)>([^<]*)</p>', page)
    assert notes == [("One", "", A_DETAIL), ("Two", "", "Stopped."), ("Three", "hidden", ""), ("Four", "hidden", "")]


@pytest.mark.parametrize(
    ("left_out", "said"),
    [
        (0, ""),
        (1, "The oldest message of this chat did not fit and was left out here."),
        (12, "The oldest 12 messages of this chat did not fit and were left out here."),
    ],
)
def test_an_answer_that_was_written_without_the_oldest_messages_says_so(
    browser: Client, chat: Chat, new_run: NewRun, left_out: int, said: str
) -> None:
    for _ in range(2):
        Run.objects.filter(pk=new_run(Status.DONE).pk).update(left_out=left_out, epoch=3)

    page = shown(browser, f"/chats/{chat.pk}")

    notes = re.findall(r'<p class="note" ([a-z]*)>([^<]*)</p>', page)
    # The second answer is the chat's last, whose note is the tail's; the last pair is the template.
    assert notes == [("hidden", ""), ("" if said else "hidden", said), *[("hidden", "")] * 3]
    assert tail(page) == (said, True)


def test_what_was_left_out_is_said_behind_how_the_answer_ended(browser: Client, chat: Chat, new_run: NewRun) -> None:
    Run.objects.filter(pk=new_run(Status.DONE).pk).update(left_out=1, finish_reason="length")

    cut_off = "Cut off: this is the longest answer allowed here."
    left_out = "The oldest message of this chat did not fit and was left out here."
    assert tail(shown(browser, f"/chats/{chat.pk}")) == (f"{cut_off} {left_out}", True)


@pytest.mark.parametrize(("status", "said"), [(Status.FAILED, A_DETAIL), (Status.CANCELLED, "Stopped.")])
def test_where_there_is_no_answer_nothing_was_left_out_of_it(
    browser: Client, chat: Chat, new_run: NewRun, status: Status, said: str
) -> None:
    Run.objects.filter(pk=new_run(status).pk).update(left_out=1)

    assert tail(shown(browser, f"/chats/{chat.pk}")) == (said, True)


def test_a_chat_that_is_being_answered_is_marked_in_the_list(browser: Client, chat: Chat, new_run: NewRun) -> None:
    assert 'class="answering"' not in shown(browser, "/")
    new_run(Status.STREAMING)
    assert 'class="answering"' in shown(browser, "/")


def test_only_the_tiers_models_can_be_picked_and_the_chats_last_one_is(
    browser: Client, chat: Chat, new_run: NewRun, model: Model, pro: Tier
) -> None:
    other = Model.objects.create(slug=f"{model.slug}-b", name="Other", source="x", context_window=2048)
    other.tiers.set([model.tiers.get(slug="free")])
    dear = Model.objects.create(slug=f"{model.slug}-c", name="Dear", source="x", context_window=2048)
    dear.tiers.set([pro])
    options = re.compile(r'<option value="([^"]+)"\s*(selected)?')

    assert options.findall(shown(browser, "/")) == [(model.slug, "selected"), (other.slug, "")]

    run = new_run(Status.DONE)
    Run.objects.filter(pk=run.pk).update(model=other)
    assert options.findall(shown(browser, f"/chats/{chat.pk}")) == [(model.slug, ""), (other.slug, "selected")]


def test_without_a_model_there_is_a_page_that_says_so(browser: Client, alice: User) -> None:
    assert "No model is open to your plan." in shown(browser, "/")


def test_pages_cost_the_same_however_much_there_is(
    browser: Client, alice: User, chat: Chat, new_run: NewRun, django_assert_num_queries: Callable[..., object]
) -> None:
    for _ in range(10):
        new_run(Status.DONE)
        Chat.objects.create(owner=alice)

    shown(browser, f"/chats/{chat.pk}")  # by which its answers have their HTML
    # The session, the user, the chat, the list, its latest run, the messages, their runs, the models.
    with django_assert_num_queries(8):  # type: ignore[attr-defined]
        shown(browser, f"/chats/{chat.pk}")


def test_pages_are_read_only(browser: Client, chat: Chat) -> None:
    for address in ("/", f"/chats/{chat.pk}"):
        assert browser.post(address).status_code == HTTPStatus.METHOD_NOT_ALLOWED
