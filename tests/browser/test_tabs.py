"""Tabs of one browser: they share a connection, whoever of them goes; and each shows what it would with its own."""

from __future__ import annotations

from dataclasses import dataclass, field

import psycopg
import pytest
from playwright.sync_api import Page, Request, expect

from tests.browser.conftest import NewVisitor
from tests.browser.visitor import GROWING, LONG, SILENCE, Visitor, scripted
from tests.browser.wire import wire_to
from tests.stack.stack import Stack

TABS = 8
SLOW = scripted(LONG, split_characters=True)
FEED = "/api/events"
POST = "BroadcastChannel.prototype.postMessage"


@dataclass
class Connections:
    """A browser's feeds: which are open, and how many were opened."""

    opened: int = 0
    _open: set[Request] = field(default_factory=set)

    @classmethod
    def of(cls, visitor: Visitor) -> Connections:
        """Count from now on."""
        connections = cls()
        visitor.context.on("request", connections._begin)
        for end in ("requestfinished", "requestfailed"):
            visitor.context.on(end, connections._end)
        return connections

    def _begin(self, request: Request) -> None:
        if FEED in request.url:
            self._open.add(request)
            self.opened += 1

    def _end(self, request: Request) -> None:
        self._open.discard(request)

    @property
    def holders(self) -> list[Page]:
        """The pages that hold them."""
        pages = [request.frame.page for request in self._open]
        return [page for page in pages if not page.is_closed()]  # of what ends with its page no end is told

    def settle(self, page: Page) -> None:
        """Wait until `page` holds the only one."""
        for _ in range(100):
            if self.holders == [page]:
                return
            page.wait_for_timeout(50)
        assert self.holders == [page]


@pytest.fixture
def busy_alice(alice: Visitor, scripted_stack: Stack) -> Visitor:
    """Alice, who may have many answers at a time."""
    with psycopg.connect(scripted_stack.database_url) as database:
        database.execute("UPDATE scheduler_tier SET concurrency = 100")
    return alice


def tabs_of(alice: Visitor, count: int) -> list[Visitor]:
    """So many tabs before a new chat, the first of them Alice's own."""
    return [alice, *(alice.another_tab("/") for _ in range(count - 1))]


def test_eight_tabs_stream_their_chats_over_one_connection_and_all_can_ask(busy_alice: Visitor) -> None:
    connections = Connections.of(busy_alice)
    busy_alice.page.reload()
    tabs = tabs_of(busy_alice, TABS)
    texts = [f"{LONG} {number}" for number in range(TABS)]

    for tab, text in zip(tabs, texts, strict=True):
        tab.ask(scripted(text, split_characters=True))

    for tab, text in zip(tabs, texts, strict=True):
        expect(tab.answers).to_have_text([text])
        expect(tab.stop).to_be_hidden()
        assert tab.stored[1] == text
    connections.settle(busy_alice.page)
    tabs[-1].ask_and_wait(scripted("And the eighth can still ask."), "And the eighth can still ask.")


def test_a_tab_that_comes_late_sees_the_answer_from_its_beginning(alice: Visitor) -> None:
    connections = Connections.of(alice)
    alice.ask(SLOW)
    expect(alice.answers).to_contain_text("word9")

    before = connections.opened
    late = alice.another_tab(alice.page.url)

    expect(late.answers).to_contain_text("word0 word1 word2")
    for tab in (alice, late):
        expect(tab.answers).to_have_text([LONG])
        expect(tab.stop).to_be_hidden()
    assert connections.opened == before + 1  # neither tab had to read it again


def test_the_tab_that_holds_the_connection_is_closed_in_mid_answer(busy_alice: Visitor) -> None:
    connections = Connections.of(busy_alice)
    busy_alice.page.reload()
    tabs = tabs_of(busy_alice, 3)
    for tab in tabs[1:]:
        tab.ask(SLOW)
    for tab in tabs[1:]:
        expect(tab.answers).to_contain_text("word3")
    connections.settle(busy_alice.page)

    busy_alice.page.close()

    for tab in tabs[1:]:
        expect(tab.answers).to_have_text([LONG])
        expect(tab.stop).to_be_hidden()
        assert tab.stored[1] == LONG
    assert len(connections.holders) == 1


def test_a_tab_that_goes_elsewhere_and_back_takes_part_again(alice: Visitor) -> None:
    other = alice.another_tab("/")
    other.ask(SLOW)
    expect(other.answers).to_contain_text("word3")

    alice.page.goto("/usage")
    alice.page.go_back()

    expect(other.answers).to_have_text([LONG])
    alice.ask_and_wait(scripted("Hi."), "Hi.")
    expect(other.chats).to_have_count(2)


def test_a_tab_that_holds_the_connection_and_falls_silent_is_replaced(alice: Visitor) -> None:
    connections = Connections.of(alice)
    alice.page.reload()
    other = Visitor(alice.context, alice.context.new_page(), alice.complaints)
    other.page.clock.install()
    other.page.goto("/")
    other.ask(SLOW)
    expect(other.answers).to_contain_text("word3")
    connections.settle(alice.page)

    alice.page.evaluate(f"window.say = {POST}; void ({POST} = () => {{}})")
    other.page.clock.fast_forward("00:40")
    other.page.clock.fast_forward("00:03")

    expect(other.answers).to_have_text([LONG])
    connections.settle(other.page)
    alice.page.evaluate(f"void ({POST} = window.say)")
    alice.ask_and_wait(scripted("Hi."), "Hi.")
    expect(other.chats).to_have_count(2)


def test_a_connection_that_dies_without_a_word_is_noticed_by_a_tab_that_does_not_hold_it(
    visit: NewVisitor, scripted_stack: Stack
) -> None:
    with wire_to(scripted_stack.port) as wire:
        alice = visit(address=wire.address)
        alice.sign_up()
        alice.page.goto("/")
        other = Visitor(alice.context, alice.context.new_page(), alice.complaints)
        other.page.clock.install()
        with other.page.expect_response(lambda response: response.request.resource_type == "fetch"):
            other.page.goto("/")
        other.ask(SLOW)
        expect(other.answers).to_contain_text("word3")

        wire.cut()
        other.page.clock.fast_forward("00:40")

        expect(other.answers).to_have_text([LONG])
        expect(other.stop).to_be_hidden()


def test_a_refused_connection_is_told_in_all_tabs_and_made_again(alice: Visitor) -> None:
    other = alice.another_tab("/")
    alice.context.route("**/api/events*", lambda route: route.fulfill(status=429))
    alice.ask(SLOW)
    for tab in (alice, other):
        expect(tab.page.get_by_text("Reconnecting…")).to_be_visible()

    alice.context.unroute("**/api/events*")

    for tab in (alice, other):
        expect(tab.page.get_by_text("Reconnecting…")).to_be_hidden()
    expect(alice.answers).to_have_text([LONG])


def test_a_chat_renamed_and_deleted_shows_in_tabs_and_browsers(alice: Visitor, elsewhere: Visitor) -> None:
    alice.ask(GROWING)
    expect(alice.answers).to_contain_text("word3")
    second = alice.another_tab(alice.page.url)
    elsewhere.listen(alice.page.url)
    everywhere = (alice, second, elsewhere)
    for page in everywhere:
        expect(page.answers).to_have_text([LONG])
        expect(page.stop).to_be_hidden()

    second.menu(0, "Rename")
    second.page.get_by_label("Title").fill("Greetings")
    second.page.keyboard.press("Enter")
    for page in everywhere:
        expect(page.page.get_by_role("heading", level=1)).to_have_text("Greetings")
        expect(page.chats).to_have_text(["Greetings"])

    elsewhere.menu(0, "Delete")
    elsewhere.page.reload()  # nobody wants it back
    for page in (alice, second):
        expect(page.page.get_by_text("This chat has been deleted.")).to_be_visible()
        expect(page.chats).to_have_count(0)
    expect(elsewhere.chats).to_have_count(0)


def test_a_deleted_chats_tab_takes_no_other_down(busy_alice: Visitor, elsewhere: Visitor) -> None:
    busy_alice.ask(SILENCE)
    expect(busy_alice.stop).to_be_visible()
    other = busy_alice.another_tab("/")
    other.ask(SLOW)
    expect(other.answers).to_contain_text("word3")
    elsewhere.page.goto("/")
    expect(elsewhere.chats).to_have_count(2)

    elsewhere.menu(1, "Delete")
    elsewhere.page.reload()  # nobody wants it back

    expect(busy_alice.page.get_by_text("This chat has been deleted.")).to_be_visible()
    expect(other.answers).to_have_text([LONG])
    expect(other.chats).to_have_count(1)
    other.ask_and_wait(scripted("Hi."), "Hi.")


def test_signing_out_in_one_tab_shows_in_all_of_its_browser_and_in_no_other(
    alice: Visitor, elsewhere: Visitor, visit: NewVisitor
) -> None:
    tabs = tabs_of(alice, 3)
    phone = visit()
    phone.page.goto("/sign-in")
    phone.page.get_by_label("Username").fill(alice.name)
    phone.page.get_by_label("Password").fill("correct horse battery")
    with phone.page.expect_response("**/api/events*"):
        phone.page.get_by_role("button", name="Sign in").click()

    tabs[1].page.get_by_role("button", name="Sign out").click()

    for tab in (tabs[0], tabs[2]):
        expect(tab.page.get_by_text("You have been signed out.")).to_be_visible()
    phone.ask_and_wait(scripted("Hi."), "Hi.")


@pytest.mark.parametrize("missing", ["delete Navigator.prototype.locks", "delete window.BroadcastChannel"])
def test_where_tabs_cannot_find_each_other_each_has_its_own_connection(alice: Visitor, missing: str) -> None:
    connections = Connections.of(alice)
    alice.context.add_init_script(missing)
    alice.listen()
    other = alice.another_tab("/")

    other.ask(GROWING)
    expect(other.answers).to_have_text([LONG])
    alice.ask_and_wait(scripted("Hi."), "Hi.")

    for tab in (alice, other):
        expect(tab.chats).to_have_count(2)
    assert set(connections.holders) == {alice.page, other.page}
