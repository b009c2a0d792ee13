"""What was written and not sent: kept for its chat, past the tab it was written in, until its writer signs out."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.browser.visitor import PASSWORD, Visitor, scripted


def next_tab(alice: Visitor, address: str) -> Visitor:
    """The same browser's only tab, once the one before it is closed."""
    tab = Visitor(alice.context, alice.context.new_page(), alice.complaints, alice.name)
    alice.page.close()
    tab.page.goto(address)
    return tab


def write(tab: Visitor, chat_id: str, text: str) -> None:
    tab.page.goto(f"/chats/{chat_id}")
    expect(tab.send).to_be_enabled()
    tab.composer.fill(text)


def test_a_draft_is_found_in_the_next_tab_and_each_chat_has_its_own(alice: Visitor) -> None:
    one, two, none = (alice.open_chat(title) for title in ("One", "Two", "None"))
    write(alice, one, "To the first")
    write(alice, two, "To the second")

    for chat_id, text in ((one, "To the first"), (two, "To the second"), (none, "")):
        alice = next_tab(alice, f"/chats/{chat_id}")
        expect(alice.send).to_be_enabled()
        expect(alice.composer).to_have_value(text)


def test_what_was_sent_is_no_draft_any_more_and_another_tabs_is_left_alone(alice: Visitor) -> None:
    alice.ask_and_wait(scripted("First."), "First.")
    other = alice.another_tab(alice.page.url)
    alice.composer.fill("Sooner")
    other.composer.fill("Later")
    alice.ask_and_wait(scripted("Second."), "Second.")
    expect(other.composer).to_have_value("Later")
    address = other.page.url

    other.page.close()
    alice = next_tab(alice, address)

    expect(alice.send).to_be_enabled()
    expect(alice.composer).to_have_value("")


def test_a_draft_before_a_new_chat_goes_with_its_question(alice: Visitor) -> None:
    alice.page.goto("/")
    alice.ask_and_wait(scripted("Hi."), "Hi.")

    alice = next_tab(alice, "/")

    expect(alice.send).to_be_enabled()
    expect(alice.composer).to_have_value("")


def test_signing_out_forgets_drafts_and_so_does_another_persons_visit(alice: Visitor) -> None:
    one = alice.open_chat("One")
    write(alice, one, "Half a thought")
    alice.page.get_by_role("button", name="Sign out").click()
    expect(alice.page).to_have_url(re.compile("/sign-in"))
    assert alice.page.evaluate("sessionStorage.length + localStorage.length") == 0

    alice.page.get_by_label("Username").fill(alice.name)
    alice.page.get_by_label("Password").fill(PASSWORD)
    alice.page.get_by_role("button", name="Sign in").click()
    expect(alice.send).to_be_enabled()
    alice.page.goto(f"/chats/{one}")
    expect(alice.send).to_be_enabled()
    expect(alice.composer).to_have_value("")

    alice.composer.fill("Half a thought")
    alice.context.clear_cookies()
    alice.sign_up()
    alice.page.goto("/")
    expect(alice.send).to_be_enabled()
    assert alice.page.evaluate("localStorage.length") == 0


def test_a_draft_of_a_chat_that_is_deleted_is_forgotten(alice: Visitor) -> None:
    one = alice.open_chat("One")
    write(alice, one, "Half a thought")
    alice = next_tab(alice, "/")
    expect(alice.chats).to_have_text(["One"])
    assert alice.page.evaluate("localStorage.length") == 1

    alice.menu(0, "Delete")
    expect(alice.page.get_by_role("button", name="Undo")).to_be_hidden(timeout=20_000)

    expect(alice.chats).to_have_count(0)
    alice.page.wait_for_function("() => localStorage.length === 0")
