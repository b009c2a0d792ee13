"""A chat that goes on from another: what it begins with, by the API and by a form."""

from __future__ import annotations

import re
from html import unescape
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from django.db import connection, connections
from django.test import Client
from django.test.utils import CaptureQueriesContext

from chat import context, continuing, services
from chat.continuing import CARRIED_PERCENT, CUT, MOST_MESSAGES
from chat.models import Chat, Role, Summary, User
from inference.tokens import Tokenizer
from scheduler.models import Model
from tests.acts import add_message, code_of, everything_stored

if TYPE_CHECKING:
    from django.test.client import _MonkeyPatchedWSGIResponse as Answer

LIPSUM = "Lorem ipsum dolor sit amet, consectetur adipiscing elit. "


@pytest.fixture
def go_on(as_alice: Client, chat: Chat, model: Model) -> Any:
    def post(continues: Any = chat.pk, by: Client = as_alice, **headers: str) -> Answer:
        return by.post("/api/chats", {"continues": continues}, content_type="application/json", headers=headers)

    return post


def talk(chat: Chat, *texts: str) -> None:
    """The user and the assistant, in turn."""
    for number, text in enumerate(texts):
        add_message(chat, (Role.USER, Role.ASSISTANT)[number % 2], text)


def began_with(answer: Answer) -> str:
    """The text that the new chat begins with."""
    assert answer.status_code == 201, answer.content
    summary = Summary.objects.get(chat=answer.json()["id"])
    assert (summary.epoch, summary.upto, summary.run) == (1, 0, None)
    return summary.text


def tokens(model: Model, text: str) -> int:
    """How many it has."""
    return Tokenizer.load(model.source).count(text)


def test_what_was_said_is_carried_over_as_a_transcript(go_on: Any, chat: Chat, alice: User) -> None:
    talk(chat, "My name is Alice.", "Hello Alice!", "What is my name?")

    answer = go_on()

    assert answer.json()["continues"] == str(chat.pk)
    assert answer.json()["title"] == ""
    new = Chat.objects.get(pk=answer.json()["id"])
    assert (new.owner, new.continues) == (alice, chat)
    assert not new.messages.exists()
    assert began_with(answer) == "User: My name is Alice.\n\nAssistant: Hello Alice!\n\nUser: What is my name?"


def test_of_a_chat_with_summaries_the_latest_and_what_came_behind_it_are(go_on: Any, chat: Chat) -> None:
    talk(chat, "One", "Two", "Three", "Four", "Five", "Six")
    for epoch, upto, text in ((1, 2, "An old summary."), (2, 4, "Alice counts.")):
        Summary.objects.create(chat=chat, epoch=epoch, upto=upto, text=text)

    assert began_with(go_on()) == "Alice counts.\n\nUser: Five\n\nAssistant: Six"


def test_an_answer_that_another_took_the_place_of_is_not(go_on: Any, chat: Chat) -> None:
    talk(chat, "Hi", "Replaced")
    chat.messages.filter(role=Role.ASSISTANT).update(replaced_at="2026-01-01T00:00Z")

    assert began_with(go_on()) == "User: Hi"


def test_it_is_at_most_a_quarter_of_the_window_and_the_newest_are_kept(go_on: Any, chat: Chat, model: Model) -> None:
    talk(chat, *(f"Message {number}. {LIPSUM * 2}" for number in range(100)))

    text = began_with(go_on())

    most = model.context_window * CARRIED_PERCENT // 100
    assert most * 0.8 < tokens(model, text) <= most
    assert f"Message 99. {LIPSUM * 2}".strip() in text
    first = int(text.removeprefix("User: ").removeprefix("Assistant: ").split()[1].rstrip("."))
    assert [f"Message {number}." in text for number in range(100)] == [number >= first for number in range(100)]


@pytest.mark.parametrize("unit", [LIPSUM, "狐🦊é", " ", "\n", "a", "!?", "نص طويل جدا "])
@pytest.mark.parametrize("window", [16, 64, 2048])
def test_it_never_passes_a_quarter_whatever_was_said(
    go_on: Any, chat: Chat, model: Model, unit: str, window: int
) -> None:
    Model.objects.update(context_window=window)
    talk(chat, *(f"x{unit * length}x" for length in (1, 5, 50, 500, 5000, 3, 3, 3, 3)))
    Summary.objects.create(chat=chat, epoch=1, upto=1, text=unit * 1000 or "x")

    answer = go_on()

    assert answer.status_code == 201
    for summary in Summary.objects.filter(chat=answer.json()["id"]):
        assert 0 < tokens(model, summary.text) <= window // 4


def test_pieces_that_come_to_more_tokens_together_than_apart_do_not_pass_it(
    go_on: Any, chat: Chat, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = Tokenizer.count
    monkeypatch.setattr(Tokenizer, "count", lambda self, text: count(self, text) + text.count("\n\n") ** 2)
    talk(chat, *(f"Message {number}." for number in range(100)))

    text = began_with(go_on())

    assert tokens(model, text) <= model.context_window * CARRIED_PERCENT // 100
    assert text.endswith("Assistant: Message 99.")


def test_a_long_message_is_cut_in_its_middle_and_leaves_room_for_others(go_on: Any, chat: Chat, model: Model) -> None:
    talk(chat, "A short question", f"It begins so. {LIPSUM * 200} And so it ends.", "The next")

    before, long, after = began_with(go_on()).split("\n\n")

    assert (before, after) == ("User: A short question", "User: The next")
    assert long.startswith("Assistant: It begins so. Lorem")
    assert long.endswith("And so it ends.")
    assert long.count(CUT) == 1


def test_a_long_summary_leaves_half_of_the_room_to_the_newest_messages(go_on: Any, chat: Chat, model: Model) -> None:
    talk(chat, *(f"Message {number}. {LIPSUM}" for number in range(100)))
    Summary.objects.create(chat=chat, epoch=1, upto=10, text=f"In the beginning. {LIPSUM * 200} In the end.")

    summary, *lines = began_with(go_on()).split("\n\n")

    assert summary.startswith("In the beginning.")
    assert summary.endswith("In the end.")
    assert CUT in summary
    half = model.context_window * CARRIED_PERCENT // 200
    assert half * 0.8 < tokens(model, summary) <= half * 1.2
    assert lines[-1].startswith("Assistant: Message 99.")


def test_a_chat_of_very_many_messages_is_not_read_whole(go_on: Any, chat: Chat, model: Model) -> None:
    Model.objects.update(context_window=1_000_000)
    talk(chat, *(f"{number}" for number in range(MOST_MESSAGES + 10)))

    assert began_with(go_on()).startswith("User: 10\n\n")


def test_going_on_twice_carries_the_first_chat_along(go_on: Any, chat: Chat) -> None:
    talk(chat, "My name is Alice.", "Hello Alice!")
    second = Chat.objects.get(pk=go_on().json()["id"])
    talk(second, "Where am I?", "Here.")

    text = began_with(go_on(second.pk))

    assert text == "User: My name is Alice.\n\nAssistant: Hello Alice!\n\nUser: Where am I?\n\nAssistant: Here."


def test_a_chat_that_nothing_was_said_in_has_nothing_to_carry(go_on: Any, chat: Chat) -> None:
    answer = go_on()

    assert (answer.status_code, answer.json()["continues"]) == (201, str(chat.pk))
    assert not Summary.objects.exists()


@pytest.mark.parametrize("body", [{}, {"continues": None}])
def test_a_chat_that_goes_on_from_none_says_so(as_alice: Client, body: dict[str, None]) -> None:
    answer = as_alice.post("/api/chats", body, content_type="application/json")

    assert (answer.status_code, answer.json()["continues"]) == (201, None)


def test_it_is_told_wherever_a_chat_is_shown(as_alice: Client, go_on: Any, chat: Chat) -> None:
    new = go_on().json()["id"]

    assert as_alice.get(f"/api/chats/{new}").json()["continues"] == str(chat.pk)
    listed = {row["id"]: row["continues"] for row in as_alice.get("/api/chats").json()["results"]}
    assert listed == {new: str(chat.pk), str(chat.pk): None}


@pytest.mark.parametrize("malformed", ["7", "", 7, True, [], {}, "x" * 36, "\ud800", "a\0b", 1.5])
def test_what_is_no_id_is_refused(go_on: Any, malformed: Any) -> None:
    before = everything_stored()

    answer = go_on(malformed)

    assert (answer.status_code, code_of(answer), answer.json()["field"]) == (400, "continues_invalid", "continues")
    assert everything_stored() == before


def test_a_chat_of_somebody_else_and_one_that_never_was_are_not_found(go_on: Any, as_bob: Client, chat: Chat) -> None:
    talk(chat, "A secret")
    before = everything_stored()

    for answer in (go_on(by=as_bob), go_on(uuid4())):
        assert (answer.status_code, code_of(answer)) == (404, "not_found")

    assert everything_stored() == before


def test_a_chat_that_is_deleted_meanwhile_is_not_found(go_on: Any, chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    talk(chat, "Hi")
    carried = continuing.carried

    def slowly(user: User, origin: Chat) -> str:
        text = carried(user, origin)
        Chat.objects.filter(pk=origin.pk).delete()
        return text

    monkeypatch.setattr(continuing, "carried", slowly)

    assert code_of(go_on()) == "not_found"
    assert not Chat.objects.exists()


def test_sent_again_with_its_key_it_is_opened_once(go_on: Any, chat: Chat) -> None:
    talk(chat, "Hi")

    first, second = (go_on(**{"Idempotency-Key": "a key"}) for _ in range(2))

    assert (first.status_code, second.status_code) == (201, 201)
    assert first.json() == second.json()
    assert second.headers["Idempotent-Replayed"] == "true"
    assert chat.continued_by.count() == Summary.objects.count() == 1
    other = go_on(uuid4(), **{"Idempotency-Key": "a key"})
    assert (other.status_code, code_of(other)) == (422, "idempotency_key_reused")


def test_tokenising_holds_no_transaction_open(go_on: Any, chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    depths: list[int] = []
    count = Tokenizer.count

    def counting(tokenizer: Tokenizer, text: str) -> int:
        depths.append(len(connections["default"].savepoint_ids))
        return count(tokenizer, text)

    monkeypatch.setattr(Tokenizer, "count", counting)
    talk(chat, "Hi")
    outside = len(connections["default"].savepoint_ids)

    go_on(**{"Idempotency-Key": "a key"})

    assert set(depths) == {outside}


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [({"is_active": False}, 400, "model_unknown"), ({"source": "/nowhere"}, 503, "model_unusable")],
)
def test_without_a_default_model_that_works_there_is_no_telling_how_much_to_carry(
    go_on: Any, chat: Chat, change: dict[str, Any], status: int, code: str
) -> None:
    talk(chat, "Hi")
    Model.objects.update(**change)

    answer = go_on()

    assert (answer.status_code, code_of(answer)) == (status, code)
    assert not chat.continued_by.exists()


def test_the_new_chat_outlives_the_old_one(go_on: Any, as_alice: Client, chat: Chat) -> None:
    talk(chat, "Hi")
    answer = go_on()
    assert as_alice.delete(f"/api/chats/{chat.pk}").status_code == 204

    assert as_alice.get(f"/api/chats/{answer.json()['id']}").json()["continues"] is None
    assert began_with(answer) == "User: Hi"


@pytest.fixture
def browser(alice: User) -> Client:
    """Alice's, signed in, and particular about tokens."""
    client = Client(enforce_csrf_checks=True)
    client.force_login(alice)
    return client


def press(browser: Client, chat: Chat) -> Answer:
    """What a press of the button on the chat's page leads to, without scripts."""
    page = browser.get(f"/chats/{chat.pk}").content.decode()
    [form] = re.findall(rf'<form method="post" action="(/chats/{chat.pk}/continue)">(.*?)</form>', page, re.DOTALL)
    [token] = re.findall(r'name="csrfmiddlewaretoken" value="(\w+)"', form[1])
    return browser.post(form[0], {"csrfmiddlewaretoken": token})


def test_the_form_leads_to_a_new_chat_that_says_from_where_it_goes_on(
    browser: Client, chat: Chat, model: Model
) -> None:
    talk(chat, "Who <b>am</b> I?", "Alice & nobody else.")

    answer = press(browser, chat)

    new = chat.continued_by.get()
    assert (answer.status_code, answer.headers["Location"]) == (302, f"/chats/{new.pk}")
    page = browser.get(f"/chats/{new.pk}").content.decode()
    [beginning] = re.findall(r'<div id="beginning".*?</details>', page, re.DOTALL)
    assert f'<a href="/chats/{chat.pk}" dir="auto">Who &lt;b&gt;am&lt;/b&gt; I?</a>' in beginning
    [carried] = re.findall(r'class="carried" dir="auto">([^<]*)</div>', beginning)
    assert unescape(carried) == "User: Who <b>am</b> I?\n\nAssistant: Alice & nobody else."


def test_the_form_needs_its_token(browser: Client, chat: Chat, model: Model) -> None:
    assert browser.post(f"/chats/{chat.pk}/continue").status_code == 403
    assert not chat.continued_by.exists()


def test_the_address_of_the_form_is_no_page(browser: Client, chat: Chat) -> None:
    assert browser.get(f"/chats/{chat.pk}/continue").status_code == 405


def test_who_was_signed_out_meanwhile_comes_back_to_the_chat(chat: Chat) -> None:
    answer = Client().post(f"/chats/{chat.pk}/continue")

    assert answer.headers["Location"] == f"/sign-in?next=/chats/{chat.pk}"
    assert not chat.continued_by.exists()


def test_a_chat_that_goes_on_from_none_says_nothing_of_it(browser: Client, chat: Chat) -> None:
    talk(chat, "Hi")
    Summary.objects.create(chat=chat, epoch=1, upto=1, text="It began with a greeting.")

    for address in ("/", f"/chats/{chat.pk}"):
        page = browser.get(address).content.decode()
        assert 'id="beginning"' not in page
        assert "greeting" not in page


def test_where_the_old_chat_is_deleted_the_new_one_still_says_what_it_began_with(
    browser: Client, chat: Chat, model: Model
) -> None:
    talk(chat, "Hi")
    new = press(browser, chat).headers["Location"]
    chat.delete()

    page = browser.get(new).content.decode()

    assert "a chat that was deleted" in page
    assert "User: Hi" in page


def test_a_chat_without_a_question_is_not_listed_until_its_first(browser: Client, chat: Chat, model: Model) -> None:
    talk(chat, "Hi")
    new = press(browser, chat).headers["Location"]
    listed = re.compile(r'<li class="chat" data-chat-id="([^"]+)"')

    assert listed.findall(browser.get("/").content.decode()) == [str(chat.pk)]
    talk(chat.continued_by.get(), "And then?")
    assert set(listed.findall(browser.get("/").content.decode())) == {str(chat.pk), new.rpartition("/")[2]}


def test_a_chat_that_cannot_go_on_is_told_why_on_a_page(browser: Client, chat: Chat, model: Model) -> None:
    for change, status, said in (
        ({"source": "/nowhere"}, 503, "This model cannot answer now."),
        ({"is_active": False}, 400, "No model is open to your plan."),
    ):
        Model.objects.update(**change)

        answer = press(browser, chat)

        assert answer.status_code == status
        assert said in answer.content.decode()
        assert f'href="/chats/{chat.pk}"' in answer.content.decode()


def test_a_chats_page_takes_one_query_more_for_the_label_of_the_one_before(
    browser: Client, chat: Chat, model: Model
) -> None:
    def queries(address: str) -> int:
        with CaptureQueriesContext(connection) as captured:
            browser.get(address)
        return len(captured)

    talk(chat, "Hi")
    new = press(browser, chat).headers["Location"]

    assert queries(new) <= queries(f"/chats/{chat.pk}") + 1


def test_the_first_prompt_begins_with_what_was_carried(alice: User, chat: Chat, model: Model) -> None:
    add_message(chat, Role.USER, "My cat is called Zuleika.")
    going_on = services.open_chat(alice, origin=chat)

    run = services.ask(alice, going_on, services.Question("What is my cat called?", model))

    told = Tokenizer.load(model.source).decode(context.for_run(run).ids)
    assert "Zuleika" in told
    assert (run.epoch, run.first_position, run.prompt.position) == (1, 1, 1)
