"""A chat that has all its questions, and how a person goes on from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest
from playwright.sync_api import Locator, expect

from tests.browser.conftest import NewVisitor
from tests.browser.visitor import SILENCE, Visitor, scripted
from tests.stack.stack import Stack

REASON = "This chat has its 2 questions. Begin a new one: it goes on from this chat's summary."


@pytest.fixture
def allow(scripted_stack: Stack) -> Iterator[Callable[[int], object]]:
    """Changes how many questions a chat may have, for whoever signs up; two to begin with."""
    change = "UPDATE scheduler_tier SET chat_turns = %s WHERE slug = 'free'"
    with psycopg.connect(scripted_stack.database_url, autocommit=True) as connection:
        connection.execute(change, [2])
        yield lambda turns: connection.execute(change, [turns])
        connection.execute(change, [400])


@pytest.fixture
def full(alice: Visitor, allow: Callable[[int], object]) -> Visitor:
    """Alice, before a chat that has all its questions."""
    alice.ask_and_wait(scripted("One."), "One.")
    alice.ask_and_wait(scripted("Two."), "Two.")
    expect(button(alice)).to_be_visible()
    return alice


def button(visitor: Visitor) -> Locator:
    """What goes on."""
    return visitor.page.get_by_role("button", name="Continue in a new chat")


def beginning(visitor: Visitor) -> Locator:
    """Where the chat on the page says what it goes on from."""
    return visitor.page.locator("#beginning")


def carried(visitor: Visitor) -> Locator:
    """What the chat on the page began with."""
    return visitor.page.locator(".carried")


def test_after_the_last_answer_the_composers_place_offers_a_new_chat_which_goes_on(full: Visitor) -> None:
    expect(full.page.get_by_text(REASON)).to_be_visible()
    expect(full.composer).to_be_hidden()
    expect(full.send).to_be_hidden()
    expect(full.retry).to_be_visible()
    old = full.page.url

    button(full).click()

    full.page.wait_for_url(lambda url: url != old)
    expect(beginning(full)).to_contain_text("Goes on from")
    expect(full.chats).to_have_count(1)
    expect(carried(full)).to_be_hidden()
    full.page.get_by_text("What it began with").click()
    expect(carried(full)).to_contain_text("Assistant: One.")
    expect(carried(full)).to_contain_text("Assistant: Two.")
    full.ask_and_wait(scripted("Three."), "Three.")
    expect(full.chats).to_have_count(2)
    beginning(full).get_by_role("link").click()
    full.page.wait_for_url(old)


def test_without_scripts_the_button_does_the_same(full: Visitor, visit: NewVisitor) -> None:
    plain = visit(storage_state=full.context.storage_state(), java_script_enabled=False)
    plain.page.goto(full.page.url)
    expect(plain.page.get_by_text(REASON)).to_be_visible()

    button(plain).click()

    expect(beginning(plain)).to_contain_text("Goes on from")
    plain.page.get_by_text("What it began with").click()
    expect(carried(plain)).to_contain_text("Assistant: Two.")


def test_who_did_not_know_is_told_and_what_they_wrote_goes_along(
    alice: Visitor, allow: Callable[[int], object]
) -> None:
    allow(3)
    for answer in ("One.", "Two."):
        alice.ask_and_wait(scripted(answer), answer)
    alice.page.wait_for_timeout(1000)  # the page has looked once more, and will not again
    allow(2)

    alice.ask(scripted("Three."))

    expect(alice.page.get_by_text(REASON)).to_be_visible()
    expect(alice.refusal).to_contain_text("What you wrote is kept")
    expect(alice.composer).to_have_value(scripted("Three."))
    expect(alice.send).to_be_hidden()
    expect(alice.texts).to_have_count(4)
    button(alice).click()
    expect(beginning(alice)).to_contain_text("Goes on from")
    expect(alice.composer).to_have_value(scripted("Three."))
    alice.composer.press("Enter")
    expect(alice.answers).to_have_text(["Three."])
    expect(alice.composer).to_have_value("")


def test_the_last_question_can_be_tried_again_and_stopped(alice: Visitor, allow: Callable[[int], object]) -> None:
    alice.ask_and_wait(scripted("One."), "One.")
    alice.ask(SILENCE)
    expect(alice.stop).to_be_visible()
    alice.page.reload()
    expect(button(alice)).to_be_hidden()
    alice.stop.click()
    expect(button(alice)).to_be_visible()
    expect(alice.stop).to_be_hidden()

    alice.retry.click()

    expect(alice.stop).to_be_visible()
    expect(button(alice)).to_be_hidden()
    alice.stop.click()
    expect(button(alice)).to_be_visible()
    expect(alice.note).to_have_text("Stopped.")


def test_a_chat_that_may_have_more_again_is_written_in_as_before(full: Visitor, allow: Callable[[int], object]) -> None:
    allow(3)
    full.page.reload()

    full.ask_and_wait(scripted("Three."), "Three.")

    assert full.stored[-1] == "Three."


def test_it_fits_on_any_screen(full: Visitor) -> None:
    for width in (320, 390, 1280):
        full.page.set_viewport_size({"width": width, "height": 800})
        assert full.page.evaluate("document.documentElement.scrollWidth") <= width
        expect(button(full)).to_be_in_viewport()
    button(full).click()
    full.page.get_by_text("What it began with").click()
    for width in (320, 390, 1280):
        full.page.set_viewport_size({"width": width, "height": 800})
        assert full.page.evaluate("document.documentElement.scrollWidth") <= width
