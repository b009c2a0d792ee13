"""From nobody to somebody with a chat, and out again."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.browser.conftest import NewVisitor
from tests.browser.visitor import PASSWORD, Visitor, scripted


def test_somebody_new_signs_up_asks_signs_out_and_comes_back(visit: NewVisitor) -> None:
    carol = visit()
    page = carol.page
    page.goto("/")
    page.get_by_role("link", name="Sign up").click()
    page.get_by_label("Username").fill("carol")
    page.get_by_label("Password", exact=True).fill(PASSWORD)
    page.get_by_label("Password again").fill(PASSWORD)
    page.get_by_role("button", name="Sign up").click()
    carol.ask_and_wait(scripted("Hello, Carol."), "Hello, Carol.")

    page.get_by_role("button", name="Sign out").click()
    page.get_by_label("Username").fill("carol")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    carol.chats.first.click()

    expect(carol.answers).to_have_text(["Hello, Carol."])


def test_signing_out_in_one_tab_ends_the_others(alice: Visitor) -> None:
    other = alice.another_tab("/").page

    alice.page.get_by_role("button", name="Sign out").click()

    expect(other.get_by_text("You have been signed out.")).to_be_visible()
    expect(other.get_by_role("link", name="Sign in again")).to_be_visible()
    expect(other.get_by_role("button", name="Send")).to_be_disabled()
