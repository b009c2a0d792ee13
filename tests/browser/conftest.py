"""Alice in a browser, against the whole product with the scripted engine; a browser's complaints fail a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.browser import chromium
from tests.browser.visitor import Visitor
from tests.stack.stack import Stack

expect.set_options(timeout=15_000)

NewVisitor = Callable[..., Visitor]


# For a module and no longer: Playwright's loop runs in this thread, where other tests want theirs.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium.running() as running:
        yield running


@pytest.fixture
def visit(browser: Browser, scripted_stack: Stack) -> Iterator[NewVisitor]:
    """Opens browser contexts, each a person or another browser of one; none may complain."""
    visitors: list[Visitor] = []

    def arrive(address: str = f"http://127.0.0.1:{scripted_stack.port}", **options: Any) -> Visitor:
        visitors.append(Visitor.arrive(browser, address, **options))
        return visitors[-1]

    yield arrive
    for visitor in visitors:
        visitor.context.close()
    assert [visitor.complaints for visitor in visitors] == [[]] * len(visitors)


@pytest.fixture
def alice(visit: NewVisitor) -> Visitor:
    """Signed in, before a new chat."""
    visitor = visit()
    visitor.sign_up()
    visitor.page.goto("/")
    return visitor


@pytest.fixture
def elsewhere(visit: NewVisitor, alice: Visitor) -> Visitor:
    """Alice again, in another browser."""
    return visit(storage_state=alice.context.storage_state())
