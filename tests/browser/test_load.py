"""An operator watches the load: the page keeps itself fresh, says when it cannot, and rests when nobody looks."""

from __future__ import annotations

import psycopg
import pytest
from playwright.sync_api import expect

from tests.browser.conftest import NewVisitor
from tests.browser.visitor import PHONE, Visitor
from tests.stack.stack import Stack

FIGURES = "**/admin/load/?figures"
HIDE = """isHidden => {
  Object.defineProperty(document, "hidden", { configurable: true, get: () => isHidden });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


@pytest.fixture
def operator(visit: NewVisitor, scripted_stack: Stack) -> Visitor:
    """Before the load page, on a telephone."""
    visitor = visit(viewport=PHONE)
    visitor.sign_up()
    with psycopg.connect(scripted_stack.database_url) as connection:
        connection.execute(
            "UPDATE chat_user SET is_staff = true, is_superuser = true WHERE username = %s", [visitor.name]
        )
    visitor.page.goto("/admin/")
    visitor.page.get_by_role("link", name="Load:").click()
    return visitor


def test_the_page_shows_the_worker_and_keeps_itself_fresh(operator: Visitor) -> None:
    page = operator.page
    as_of = page.locator("#load time")
    at_first = as_of.inner_text()

    expect(as_of).not_to_have_text(at_first)
    expect(page.get_by_role("table", name="Workers").get_by_role("row", name="gpu1@test")).to_contain_text("/ 64")
    expect(page.get_by_role("table", name="Tiers").get_by_role("row", name="Free")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]


def test_a_link_that_has_the_focus_keeps_it(operator: Visitor) -> None:
    link = operator.page.get_by_role("table", name="Tiers").get_by_role("link", name="Free")
    link.focus()
    for _ in range(2):
        with operator.page.expect_response(FIGURES):
            pass

    expect(link).to_be_focused()


def test_figures_that_are_old_are_said_to_be(operator: Visitor) -> None:
    page = operator.page
    state = page.get_by_role("status")
    expect(state).to_be_hidden()
    page.route(FIGURES, lambda route: route.abort())

    expect(state).to_contain_text("these figures are old")

    page.unroute(FIGURES)
    expect(state).to_be_hidden()


def test_a_page_that_nobody_sees_asks_for_nothing(operator: Visitor) -> None:
    page = operator.page
    asked: list[str] = []
    with page.expect_response(FIGURES):
        pass
    page.evaluate(HIDE, True)
    page.on("request", lambda request: asked.append(request.url))
    page.wait_for_timeout(4000)  # longer than its pause
    assert asked == []

    with page.expect_response(FIGURES):
        page.evaluate(HIDE, False)
