"""Where scripts are switched off: chats are read, and questions asked, stopped and asked again, by plain forms."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import NewVisitor
from tests.browser.visitor import PHONE, SILENCE, Visitor, scripted

LINES = "\n\n".join(f"Line {number}" for number in range(80))
BEING_WRITTEN = "The answer is being written."


@pytest.fixture
def reader(visit: NewVisitor) -> Visitor:
    """Signed in, before a new chat, without scripts."""
    visitor = visit(java_script_enabled=False)
    visitor.sign_up()
    visitor.page.goto("/")
    return visitor


def send(reader: Visitor, question: str) -> None:
    reader.composer.fill(question)
    reader.send.click()


def test_history_can_be_read_and_needs_no_scripts(alice: Visitor, visit: NewVisitor) -> None:
    alice.ask_and_wait(scripted("Read me."), "Read me.")
    reader = visit(java_script_enabled=False, storage_state=alice.context.storage_state())
    reader.page.goto("/")

    reader.chats.first.click()

    expect(reader.answers).to_have_text(["Read me."])


def test_a_question_lands_on_a_page_that_shows_the_answer_when_it_is_there(reader: Visitor) -> None:
    send(reader, scripted("By form.", first_token_ms=1500))
    expect(reader.page.get_by_text(BEING_WRITTEN)).to_be_visible()
    expect(reader.composer).to_be_hidden()

    expect(reader.answers).to_have_text(["By form."])

    expect(reader.page.get_by_text(BEING_WRITTEN)).to_be_hidden()
    send(reader, scripted("And again."))
    expect(reader.answers).to_have_text(["By form.", "And again."])
    assert len(reader.stored) == 4


def test_a_long_chat_is_shown_from_its_end_and_can_be_scrolled_to_its_beginning(reader: Visitor) -> None:
    send(reader, scripted(LINES, tokens_per_step=100))

    expect(reader.page.get_by_text("Line 79")).to_be_in_viewport()
    expect(reader.texts.first).not_to_be_in_viewport()
    reader.texts.first.scroll_into_view_if_needed()
    expect(reader.texts.first).to_be_in_viewport()


def test_what_is_refused_is_still_in_the_form(reader: Visitor) -> None:
    send(reader, "  ")

    expect(reader.refusal).to_have_text("Write something first.")
    expect(reader.composer).to_have_value("  ")
    send(reader, scripted("Better."))
    expect(reader.answers).to_have_text(["Better."])


def test_an_answer_can_be_stopped_and_its_question_tried_again(reader: Visitor) -> None:
    send(reader, SILENCE)
    reader.page.get_by_role("button", name="Stop").click()
    expect(reader.note).to_have_text("Stopped.")

    reader.retry.click()

    expect(reader.page.get_by_text(BEING_WRITTEN)).to_be_visible()
    reader.page.get_by_role("button", name="Stop").click()
    expect(reader.note).to_have_text("Stopped.")


def test_on_a_phone_what_is_written_and_sent_is_in_sight(visit: NewVisitor) -> None:
    reader = visit(viewport=PHONE, java_script_enabled=False)
    reader.sign_up()
    reader.page.goto("/")

    send(reader, scripted("Small."))

    expect(reader.answers).to_have_text(["Small."])
    for part in (reader.answers, reader.composer, reader.send):
        expect(part).to_be_in_viewport()
