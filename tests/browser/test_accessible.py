"""axe-core looks at every page, by day and by night, on a wide screen and on a telephone."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from tests.browser.visitor import DESKTOP, PHONE, SILENCE, UNENDING, Visitor, scripted
from tests.stack.stack import Stack

RICH = """# Fox

A **bold** word, [a link](https://example.org/), `code`, ~~not~~ \\(x^2\\).

1. one
- [x] two

> Said.

| a | b |
| --- | ---: |
| 1 | 2 |

```python
def fox(number: int) -> str:
    return f"{number} over the lazy dog, and on, and on, and on, and on, and on, and on, and on, and on"  # far
```
"""
# By day on a wide screen, by night on a telephone.
VIEWS = (("light", DESKTOP), ("dark", PHONE))
PROMOTE = "UPDATE chat_user SET is_staff = true, is_superuser = true WHERE username = %s"


@pytest.fixture(scope="module")
def reader(browser: Browser, scripted_stack: Stack) -> Iterator[Visitor]:
    """Somebody who is an operator too."""
    visitor = Visitor.arrive(browser, f"http://127.0.0.1:{scripted_stack.port}")
    visitor.sign_up()
    with psycopg.connect(scripted_stack.database_url, autocommit=True) as connection:
        connection.execute(PROMOTE, [visitor.name])
    yield visitor
    visitor.context.close()
    assert visitor.complaints == []


def assert_accessible(visitor: Visitor) -> None:
    """In both colour schemes, and at both widths."""
    found = []
    for scheme, size in VIEWS:
        visitor.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]  # one of its literals
        visitor.page.set_viewport_size(size)
        visitor.page.wait_for_timeout(300)  # the admin's colours pass over into each other
        violations = Axe().run(visitor.page).response["violations"]
        found += [
            (scheme, size["width"], each["id"], node["html"][:200], node["failureSummary"][:300])
            for each in violations
            for node in each["nodes"]
        ]
    visitor.page.set_viewport_size(DESKTOP)
    assert found == []


@pytest.mark.parametrize(
    "address",
    [
        *("/", "/usage", "/keys", "/api/docs", "/nowhere"),
        *("/admin/", "/admin/load/", "/admin/chat/run/", "/admin/chat/user/"),
    ],
)
def test_pages(reader: Visitor, address: str) -> None:
    reader.page.goto(address)
    assert_accessible(reader)


@pytest.mark.parametrize("address", ["/sign-in", "/sign-up"])
def test_pages_before_signing_in(visitor: Visitor, address: str) -> None:
    visitor.page.goto(address)
    assert_accessible(visitor)
    visitor.page.locator("[name=username]").fill("x")
    visitor.page.locator(".card form").evaluate("(form) => { form.noValidate = true; form.submit() }")
    expect(visitor.page.locator(".error").first).to_be_visible()
    assert_accessible(visitor)


@pytest.fixture
def visitor(browser: Browser, scripted_stack: Stack) -> Iterator[Visitor]:
    """Nobody yet."""
    visitor = Visitor.arrive(browser, f"http://127.0.0.1:{scripted_stack.port}")
    yield visitor
    visitor.context.close()


def test_a_chat(reader: Visitor) -> None:
    reader.page.goto("/")
    reader.ask(scripted(RICH))
    expect(reader.answers.locator(".hljs-keyword").first).to_be_visible()
    expect(reader.answers.locator("math").first).to_be_visible()
    assert_accessible(reader)
    reader.ask(scripted("Half of it", failure="generation_failed", fail_after_tokens=3))
    expect(reader.retry).to_be_visible()
    assert_accessible(reader)


def test_an_answer_that_waits_and_one_that_is_written(reader: Visitor) -> None:
    for question in (SILENCE, UNENDING):
        reader.page.goto("/")
        reader.ask(question)
        expect(reader.stop).to_be_visible()
        assert_accessible(reader)
        reader.page.keyboard.press("Escape")
        expect(reader.stop).to_be_hidden()


@pytest.mark.parametrize("address", ["/", "/usage", "/keys", "/sign-in", "/admin/load/"])
def test_pages_from_right_to_left(reader: Visitor, browser: Browser, address: str) -> None:
    signed_in = None if address == "/sign-in" else reader.context.storage_state()
    sara = Visitor.arrive(browser, reader.page.url, locale="fa-IR", storage_state=signed_in)
    try:
        sara.page.goto(address)
        expect(sara.page.locator("html")).to_have_attribute("dir", "rtl")
        assert_accessible(sara)
    finally:
        sara.context.close()
