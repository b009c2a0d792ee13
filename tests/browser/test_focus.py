"""Where the keyboard's focus goes, and what Escape closes."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, expect

from chat.pages import CHATS_A_PAGE
from tests.browser.conftest import NewVisitor
from tests.browser.visitor import DESKTOP, PHONE, SILENCE, Visitor, scripted


def dots(visitor: Visitor, title: str) -> Locator:
    """What opens the menu of the chat of that title."""
    return visitor.page.locator(".chat", has_text=title).get_by_label("More about this chat")


def test_escape_closes_the_menu_then_the_drawer_then_stops(visit: NewVisitor) -> None:
    alice = visit(viewport=PHONE)
    alice.sign_up()
    alice.page.goto("/")
    alice.ask(SILENCE)
    expect(alice.stop).to_be_visible()
    alice.page.get_by_role("button", name="Chats", exact=True).click()
    expect(alice.page.get_by_role("button", name="Close", exact=True)).to_be_focused()
    dots(alice, "Please").click()
    rename = alice.page.get_by_role("button", name="Rename")
    expect(rename).to_be_visible()

    alice.page.keyboard.press("Escape")
    expect(rename).to_be_hidden()
    expect(dots(alice, "Please")).to_be_focused()
    alice.page.keyboard.press("Escape")
    expect(alice.page.get_by_role("button", name="Chats", exact=True)).to_be_focused()
    expect(alice.stop).to_be_enabled()
    alice.page.keyboard.press("Escape")

    expect(alice.note).to_have_text("Stopped.")


def test_a_window_that_grows_wide_closes_the_drawer(alice: Visitor) -> None:
    alice.page.set_viewport_size(PHONE)
    alice.page.get_by_role("button", name="Chats", exact=True).click()

    alice.page.set_viewport_size(DESKTOP)

    alice.ask_and_wait(scripted("Hi."), "Hi.")


def test_after_renaming_the_focus_is_back_at_the_chat(alice: Visitor) -> None:
    for title in ("One", "Two"):
        alice.open_chat(title)
    alice.page.reload()

    alice.menu(1, "Rename")
    alice.page.keyboard.press("Escape")
    expect(dots(alice, "One")).to_be_focused()
    alice.menu(1, "Rename")
    alice.page.get_by_label("Title").fill("Uno")
    alice.page.keyboard.press("Enter")

    expect(dots(alice, "Uno")).to_be_focused()


def test_by_keyboard_a_deletion_leads_to_undo_and_that_back_to_the_chat(alice: Visitor) -> None:
    for title in ("One", "Two"):
        alice.open_chat(title)
    alice.page.reload()
    keys = alice.page.keyboard

    for leaves, next_focus in (("Enter", dots(alice, "One")), ("Escape", alice.page.locator(".new-chat"))):
        dots(alice, "One").focus()
        keys.press("Enter")
        alice.page.locator(".chat", has_text="One").get_by_role("button", name="Delete").focus()
        keys.press("Enter")
        expect(alice.undo).to_be_focused()
        keys.press(leaves)
        expect(next_focus).to_be_focused()

    expect(alice.chats).to_have_text(["Two"])
    expect(alice.undo).to_be_hidden()


def test_a_list_that_changes_keeps_the_focus_where_it_was(alice: Visitor) -> None:
    alice.open_chat("One")
    alice.listen()
    one = alice.page.get_by_role("link", name="One")
    one.focus()

    alice.open_chat("Two")

    expect(alice.chats).to_have_text(["Two", "One"])
    expect(one).to_be_focused()


def test_what_came_while_a_menu_was_open_is_listed_when_it_closes(alice: Visitor) -> None:
    alice.open_chat("One")
    alice.listen()
    dots(alice, "One").click()
    with alice.page.expect_request_finished(lambda request: request.resource_type == "fetch"):
        alice.open_chat("Two")
    expect(alice.chats).to_have_text(["One"])

    alice.page.keyboard.press("Escape")

    expect(alice.chats).to_have_text(["Two", "One"])
    expect(dots(alice, "One")).to_be_focused()


def test_older_chats_take_the_focus_when_they_come(alice: Visitor) -> None:
    for number in range(CHATS_A_PAGE + 2):
        alice.open_chat(f"Chat {number}")
    alice.page.reload()

    alice.page.get_by_role("link", name="Older chats").click()

    expect(alice.page.get_by_role("link", name=re.compile("^Chat 1$"))).to_be_focused()
