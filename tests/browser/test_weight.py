"""What a page weighs before its first message, and that it is seen before its scripts have come."""

from __future__ import annotations

import gzip

from playwright.sync_api import Route, expect

from tests.browser.visitor import Visitor, scripted

MOST_BYTES = 60_000


def scripts_of(visitor: Visitor, address: str) -> dict[str, int]:
    """The scripts that a page loads, and how large each is when it is compressed."""
    loaded: dict[str, int] = {}

    def weigh(route: Route) -> None:
        answer = route.fetch()
        loaded[route.request.url.rpartition("/")[2]] = len(gzip.compress(answer.body(), 9))
        route.fulfill(response=answer)

    visitor.page.route("**/*.js", weigh)
    visitor.page.goto(address)
    expect(visitor.send).to_be_enabled()
    visitor.page.unroute_all()
    return loaded


def test_scripts_before_the_first_message_are_few_and_libraries_come_when_they_are_of_use(alice: Visitor) -> None:
    loaded = scripts_of(alice, "/")
    assert sum(loaded.values()) < MOST_BYTES, loaded
    assert not [name for name in loaded if name.startswith(("katex", "highlight"))]
    with alice.page.expect_response("**/katex*"), alice.page.expect_response("**/highlight*"):
        alice.ask(scripted("\\(x\\)\n\n```python\npass\n```\n"))


def test_the_page_is_painted_before_its_scripts_come(alice: Visitor) -> None:
    alice.ask_and_wait(scripted("Seen."), "Seen.")
    for script in ("**/*.js", "**/words.js?*"):
        alice.page.route(script, lambda _: None)  # which are never answered

    alice.page.reload(wait_until="commit")

    expect(alice.answers).to_have_text(["Seen."])
    expect(alice.composer).to_be_visible()
    alice.page.wait_for_function("() => performance.getEntriesByName('first-contentful-paint').length === 1")
    alice.page.unroute_all()
