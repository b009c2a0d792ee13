"""On a phone, at any width, with long histories: the page can be used."""

from __future__ import annotations

import psycopg
import pytest
from playwright.sync_api import expect

from chat.pages import MESSAGES_A_PAGE
from tests.browser.conftest import NewVisitor
from tests.browser.visitor import DESKTOP, PHONE, Visitor, scripted
from tests.stack.stack import Stack

UNBROKEN = "x" * 300
LINK_PX = 40  # the link that goes when nothing is left behind it


@pytest.fixture
def at_a_phone(visit: NewVisitor) -> Visitor:
    visitor = visit(viewport=PHONE, is_mobile=True, has_touch=True)
    visitor.sign_up()
    visitor.page.goto("/")
    return visitor


def test_on_a_phone_nothing_overflows_and_the_list_is_a_drawer(at_a_phone: Visitor) -> None:
    page = at_a_phone.page
    at_a_phone.ask_and_wait(scripted(UNBROKEN, tokens_per_step=20), UNBROKEN)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    assert page.locator("#scroll").evaluate("r => r.scrollWidth <= r.clientWidth")
    expect(at_a_phone.composer).to_be_in_viewport()
    expect(at_a_phone.send).to_be_in_viewport()
    assert at_a_phone.composer.evaluate("e => parseFloat(getComputedStyle(e).fontSize)") >= 16
    expect(at_a_phone.chats.first).to_be_hidden()

    page.get_by_role("button", name="Chats", exact=True).tap()

    expect(at_a_phone.chats.first).to_be_in_viewport()
    page.keyboard.press("Escape")
    expect(at_a_phone.chats.first).to_be_hidden()
    page.get_by_role("link", name="New chat").tap()
    expect(page.get_by_text("What would you like to know?")).to_be_visible()


def test_at_any_width_the_page_does_not_scroll_sideways(alice: Visitor) -> None:
    alice.ask_and_wait(scripted(UNBROKEN, tokens_per_step=20), UNBROKEN)

    for width in (320, 720, 1024, 1440):
        alice.page.set_viewport_size({"width": width, "height": DESKTOP["height"]})
        assert alice.page.evaluate("document.documentElement.scrollWidth") <= width
        assert alice.page.locator("#scroll").evaluate("r => r.scrollWidth <= r.clientWidth")
        expect(alice.send).to_be_in_viewport()


def test_rtl_text_is_set_from_the_right_and_the_next_message_is_not(alice: Visitor) -> None:
    alice.ask(scripted("سلام دنیا. " * 6, unending=True))
    expect(alice.page.locator(".turn.live .part p")).to_have_css("direction", "rtl")
    expect(alice.texts.first).to_have_css("direction", "ltr")

    alice.stop.click()

    expect(alice.retry).to_be_visible()
    expect(alice.answers.locator("p")).to_have_css("direction", "rtl")


LISTS = "1. سلام\n2. دنیا\n\n| نام | شهر |\n| --- | --- |\n| سارا | شیراز |\n\n- one\n\n"


def test_lists_and_tables_run_as_their_own_text_does(alice: Visitor) -> None:
    alice.ask(scripted(LISTS + "And so on.", tokens_per_step=20, unending=True))
    expect(alice.page.locator(".turn.live .part > ul")).to_be_visible()  # while it is written
    assert_directions(alice)

    alice.stop.click()

    expect(alice.retry).to_be_visible()
    alice.page.reload()  # as the server has made it
    expect(alice.answers.locator(".part")).to_have_count(0)
    assert_directions(alice)


def assert_directions(alice: Visitor) -> None:
    expect(alice.answers.locator("table")).to_have_css("direction", "rtl")
    expect(alice.answers.locator("ol")).to_have_css("direction", "rtl")
    expect(alice.answers.locator("ul")).to_have_css("direction", "ltr")


def test_earlier_messages_come_above_without_moving_what_is_read(alice: Visitor, scripted_stack: Stack) -> None:
    chat_id = alice.open_chat("Long")
    fill_chat(scripted_stack, chat_id, MESSAGES_A_PAGE + 7)
    alice.page.goto(f"/chats/{chat_id}")
    expect(alice.texts).to_have_count(MESSAGES_A_PAGE)
    before = alice.page.get_by_text("Message 8", exact=True).bounding_box()

    # From afar: near it they come by themselves.
    alice.page.get_by_role("link", name="Earlier messages").evaluate("link => link.click()")

    expect(alice.texts).to_have_text([f"Message {number}" for number in range(1, MESSAGES_A_PAGE + 8)])
    expect(alice.page.locator(".turn").first).to_be_focused()
    after = alice.page.get_by_text("Message 8", exact=True).bounding_box()
    assert before
    assert after
    assert abs(after["y"] - before["y"]) < LINK_PX


def fill_chat(stack: Stack, chat_id: str, count: int) -> None:
    """Write messages past the services."""
    with psycopg.connect(stack.database_url, autocommit=True) as connection:
        connection.execute(
            """INSERT INTO chat_message (id, chat_id, position, role, content, token_count)
               SELECT gen_random_uuid(), %s, n, CASE n %% 2 WHEN 1 THEN 'user' ELSE 'assistant' END, 'Message ' || n, 1
                 FROM generate_series(1, %s) AS n""",
            [chat_id, count],
        )
