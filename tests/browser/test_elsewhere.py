"""One chat in two tabs and two browsers, and connections that break."""

from __future__ import annotations

import re

from playwright.sync_api import Route, expect

from tests.browser.visitor import GROWING, LONG, PASSWORD, SILENCE, UNENDING, Visitor, scripted


def test_a_second_tab_sees_the_same_answer_grow(alice: Visitor) -> None:
    alice.ask(GROWING)
    expect(alice.answers).to_contain_text("word3")

    second = alice.another_tab(alice.page.url)

    expect(second.answers).to_have_text([LONG])
    expect(alice.answers).to_have_text([LONG])
    expect(second.retry).to_be_visible()


def test_what_is_asked_in_one_browser_appears_in_another_which_can_stop_it(alice: Visitor, elsewhere: Visitor) -> None:
    alice.ask_and_wait(scripted("First."), "First.")
    elsewhere.listen(alice.page.url)

    alice.ask(SILENCE)
    expect(elsewhere.texts).to_have_text([scripted("First."), "First.", SILENCE, ""])
    elsewhere.stop.click()

    for browser in (alice, elsewhere):
        expect(browser.note).to_have_text("Stopped.")
        expect(browser.stop).to_be_hidden()


def test_an_answer_that_was_tried_again_elsewhere_is_replaced_here(alice: Visitor, elsewhere: Visitor) -> None:
    alice.ask_and_wait(scripted("First."), "First.")
    elsewhere.listen(alice.page.url)

    messages = f"/api/chats/{alice.chat_id}/messages"
    old_id = alice.api(messages)["results"][-1]["id"]

    alice.retry.click()

    for browser in (alice, elsewhere):
        expect(browser.page.locator(f'[data-message-id="{old_id}"]')).to_have_count(0)
        expect(browser.retry).to_be_visible()
    new_id = alice.api(messages)["results"][-1]["id"]
    for browser in (alice, elsewhere):
        expect(browser.page.locator(f'.assistant[data-message-id="{new_id}"] .text')).to_have_text("First.")
        expect(browser.answers).to_have_count(1)


def test_a_chat_begun_renamed_and_deleted_elsewhere_changes_the_list_here(alice: Visitor, elsewhere: Visitor) -> None:
    elsewhere.listen("/")
    alice.ask_and_wait(scripted("Hi."), "Hi.")
    expect(elsewhere.chats).to_have_text([re.compile("^(Please|Hi$)")])  # its title may be there already

    alice.menu(0, "Rename")
    alice.page.get_by_label("Title").fill("  Greetings & <b>more</b> ")
    alice.page.keyboard.press("Enter")

    for browser in (alice, elsewhere):
        expect(browser.chats).to_have_text(["Greetings & <b>more</b>"])
    expect(alice.page.get_by_role("heading", level=1)).to_have_text("Greetings & <b>more</b>")
    elsewhere.delete(0)
    for browser in (alice, elsewhere):
        expect(browser.chats).to_have_count(0)
    expect(alice.page.get_by_text("This chat has been deleted.")).to_be_visible()
    expect(alice.send).to_be_disabled()


def test_a_cut_connection_is_told_and_the_answer_goes_on_when_it_is_back(alice: Visitor) -> None:
    alice.ask(GROWING)
    expect(alice.answers).to_contain_text("word3")

    alice.context.set_offline(True)
    alice.page.evaluate("dispatchEvent(new PageTransitionEvent('pagehide'))")
    alice.context.set_offline(False)
    alice.page.evaluate("dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true }))")

    expect(alice.answers).to_have_text([LONG])
    expect(alice.stop).to_be_hidden()
    assert alice.stored[1] == LONG


def test_while_the_server_is_away_the_page_says_so_and_keeps_what_was_written(alice: Visitor) -> None:
    expect(alice.send).to_be_enabled()
    alice.page.route(re.compile("/api/"), lambda route: route.abort())

    alice.ask("Do not lose this")

    expect(alice.refusal).to_contain_text("no connection")
    expect(alice.composer).to_have_value("Do not lose this")
    alice.page.unroute(re.compile("/api/"))
    alice.composer.press("Enter")
    expect(alice.texts.first).to_have_text("Do not lose this")
    expect(alice.refusal).to_be_hidden()


def test_a_refused_connection_is_told_and_tried_again(alice: Visitor) -> None:
    alice.page.route("**/api/events*", lambda route: route.fulfill(status=429))
    alice.page.reload()
    expect(alice.page.get_by_text("Reconnecting…")).to_be_visible()

    alice.page.unroute("**/api/events*")

    expect(alice.page.get_by_text("Reconnecting…")).to_be_hidden()


def test_a_page_whose_session_is_over_says_so_when_it_is_used(alice: Visitor) -> None:
    alice.listen()
    alice.context.clear_cookies(name="sessionid")

    alice.ask("Do not lose this")

    expect(alice.refusal).to_contain_text("signed out")
    expect(alice.composer).to_have_value("Do not lose this")


def test_a_question_whose_reply_was_lost_is_found_and_leaves_the_draft(alice: Visitor) -> None:
    alice.ask_and_wait(scripted("First."), "First.")

    def lose_the_reply(route: Route) -> None:
        route.fetch()
        route.abort()

    alice.page.route("**/messages", lose_the_reply)
    alice.ask(scripted("Second."))

    expect(alice.answers).to_have_text(["First.", "Second."])
    expect(alice.composer).to_have_value("")
    expect(alice.refusal).to_be_hidden()
    expect(alice.texts).to_have_count(4)


def test_a_page_left_while_its_question_was_on_its_way_shows_it_once(alice: Visitor) -> None:
    alice.ask_and_wait(scripted("First."), "First.")
    alice.page.route("**/messages", lambda route: route.fetch())  # the reply never comes
    alice.page.route("**/api/events*", lambda route: route.abort())
    alice.page.reload()
    alice.ask(scripted("Second."))
    alice.page.unroute("**/api/events*")
    alice.page.unroute("**/messages")

    alice.page.reload()

    expect(alice.answers).to_have_text(["First.", "Second."])
    expect(alice.composer).to_have_value("")


def test_deleted_in_mid_answer_the_half_answer_says_that_it_was_stopped(alice: Visitor, elsewhere: Visitor) -> None:
    alice.ask_and_wait(scripted("First."), "First.")
    elsewhere.page.goto("/")
    alice.ask(UNENDING)
    expect(alice.answers.last).to_contain_text("word3")

    elsewhere.delete(0)

    expect(alice.page.get_by_text("This answer was stopped.")).to_be_visible()
    expect(alice.page.locator(".turn.live")).to_have_count(0)
    expect(alice.status).to_have_text("")


def test_signed_out_elsewhere_the_draft_is_there_after_signing_in_again(alice: Visitor) -> None:
    alice.ask_and_wait(scripted("Hi."), "Hi.")
    address = alice.page.url
    other = alice.another_tab("/").page
    alice.composer.fill("Half a thought")

    other.get_by_role("button", name="Sign out").click()
    alice.page.get_by_role("link", name="Sign in again").click()
    alice.page.get_by_label("Username").fill(alice.name)
    alice.page.get_by_label("Password").fill(PASSWORD)
    alice.page.get_by_role("button", name="Sign in").click()

    expect(alice.page).to_have_url(address)
    expect(alice.composer).to_have_value("Half a thought")
    alice.page.get_by_role("button", name="Sign out").click()
    assert alice.page.evaluate("sessionStorage.length + localStorage.length") == 0
