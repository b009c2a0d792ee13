"""Replies that are lost, pages that are left, people who press twice: whatever is sent again is done once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import psycopg
import pytest
from playwright.sync_api import Route, expect

from tests.browser.visitor import Visitor, scripted
from tests.stack.stack import Stack

POSTS = re.compile(r"/api/(chats|chats/[^/]+/messages|runs/[^/]+/retry)$")
FEED = "**/api/events*"
Count = Callable[[], tuple[int, int]]


@pytest.fixture
def count(scripted_stack: Stack, alice: Visitor) -> Iterator[Count]:
    """How many chats Alice has, and how many runs."""
    rows = """
        SELECT count(DISTINCT chat_chat.id), count(chat_run.id)
          FROM chat_user JOIN chat_chat ON owner_id = chat_user.id
          LEFT JOIN chat_run ON chat_id = chat_chat.id AND kind = 'reply'
         WHERE username = %s
    """
    with psycopg.connect(scripted_stack.database_url, autocommit=True) as connection:
        yield lambda: connection.execute(rows, [alice.name]).fetchone() or (0, 0)


@dataclass
class Losing:
    """Loses the replies to the next POSTs of each address; the calls arrive."""

    visitor: Visitor
    each: int
    sent: dict[str, list[str]] = field(default_factory=dict)

    def begin(self) -> Losing:
        self.visitor.page.route(POSTS, self._carry)
        return self

    def _carry(self, route: Route) -> None:
        if route.request.method != "POST":
            return route.continue_()
        keys = self.sent.setdefault(route.request.url, [])
        keys.append(route.request.headers["idempotency-key"])
        response = route.fetch()
        return route.abort() if len(keys) <= self.each else route.fulfill(response=response)


def test_replies_that_are_lost_are_asked_for_again_with_the_same_key(alice: Visitor, count: Count) -> None:
    alice.page.route(FEED, lambda route: route.abort())  # nothing else tells the page
    alice.page.reload()
    losing = Losing(alice, each=2).begin()

    alice.ask(scripted("Hi."))
    expect(alice.stop).to_be_visible()
    alice.page.unroute(FEED)

    expect(alice.answers).to_have_text(["Hi."])
    expect(alice.stop).to_be_hidden()
    assert [len(keys) for keys in losing.sent.values()] == [3, 3]
    assert [len(set(keys)) for keys in losing.sent.values()] == [1, 1]
    assert count() == (1, 1)
    assert alice.stored == [scripted("Hi."), "Hi."]
    expect(alice.texts).to_have_count(2)


def test_a_proxy_that_gives_up_is_a_lost_reply(alice: Visitor, count: Count) -> None:
    def give_up(route: Route) -> None:
        route.fetch()
        route.fulfill(status=504, body="<h1>Gateway time-out</h1>")

    alice.page.route("**/messages", give_up, times=1)

    alice.ask_and_wait(scripted("Hi."), "Hi.")

    expect(alice.send).to_be_enabled()
    assert count() == (1, 1)
    assert all("504" in complaint for complaint in alice.complaints)
    alice.complaints.clear()


def test_what_was_given_up_and_is_sent_again_is_one_run(alice: Visitor, count: Count) -> None:
    alice.page.route(FEED, lambda route: route.abort())
    alice.page.reload()
    alice.page.route("**/chats/*", lambda route: route.abort())  # pages neither
    Losing(alice, each=4).begin()
    alice.ask(scripted("Hi."))
    expect(alice.refusal).to_contain_text("no connection")
    expect(alice.composer).to_have_value(scripted("Hi."))

    alice.page.unroute("**/chats/*")
    alice.page.unroute(FEED)
    alice.composer.press("Enter")

    expect(alice.answers).to_have_text(["Hi."])
    expect(alice.composer).to_have_value("")
    assert count() == (1, 1)


def test_a_changed_question_is_another_one(alice: Visitor, count: Count) -> None:
    alice.ask_and_wait(scripted("Hi."), "Hi.")
    alice.page.route("**/messages", lambda route: route.abort())
    alice.ask(scripted("Ho."))
    expect(alice.refusal).to_contain_text("no connection")
    alice.page.unroute("**/messages")

    alice.ask_and_wait(scripted("Ha."), "Ha.")

    assert alice.stored == [scripted("Hi."), "Hi.", scripted("Ha."), "Ha."]


def test_pressing_many_times_is_one_run(alice: Visitor, count: Count) -> None:
    expect(alice.send).to_be_enabled()
    alice.composer.fill(scripted("Hi."))

    alice.page.evaluate("""() => {
      const [form, send] = [document.querySelector("#composer"), document.querySelector("#send")];
      for (const _ of [1, 2, 3]) {
        form.requestSubmit();
        send.click();
      }
    }""")

    expect(alice.answers).to_have_text(["Hi."])
    expect(alice.stop).to_be_hidden()
    assert count() == (1, 1)
    assert alice.stored == [scripted("Hi."), "Hi."]


def test_a_page_left_before_its_question_came_to_the_server_sends_it_when_it_is_back(
    alice: Visitor, count: Count
) -> None:
    alice.ask_and_wait(scripted("Hi."), "Hi.")
    held: list[Route] = []  # the first, which goes nowhere, and goes with its page

    def hold_the_first(route: Route) -> None:
        if held:
            return route.continue_()
        return held.append(route)

    alice.page.route("**/messages", hold_the_first)
    alice.ask(scripted("Ho."))
    expect(alice.texts).to_have_count(3)
    alice.composer.fill("And another thing")
    assert count() == (1, 1)

    alice.page.reload()

    expect(alice.answers).to_have_text(["Hi.", "Ho."])
    expect(alice.texts).to_have_count(4)
    expect(alice.composer).to_have_value("And another thing")
    assert count() == (1, 2)


def test_while_the_first_try_is_in_flight_the_page_waits_for_what_it_makes(alice: Visitor, count: Count) -> None:
    problem = '{"code": "idempotency_in_flight", "detail": "", "status": 409}'
    headers = {"Retry-After": "1", "Content-Type": "application/problem+json"}
    alice.page.route("**/messages", lambda route: route.fulfill(status=409, headers=headers, body=problem), times=3)

    alice.ask_and_wait(scripted("Hi."), "Hi.")

    assert count() == (1, 1)


def test_another_try_whose_reply_was_lost_is_one_run(alice: Visitor, count: Count) -> None:
    alice.ask_and_wait(scripted("Hi."), "Hi.")
    losing = Losing(alice, each=1).begin()

    with alice.page.expect_response(POSTS):
        alice.retry.click()

    expect(alice.answers).to_have_text(["Hi."])
    expect(alice.stop).to_be_hidden()
    expect(alice.retry).to_be_enabled()
    assert [len(set(keys)) for keys in losing.sent.values()] == [1]
    assert count() == (1, 2)
