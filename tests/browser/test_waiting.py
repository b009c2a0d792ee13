"""What the page says while a run waits for a worker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Route, expect

from tests.browser.visitor import SILENCE, Visitor


def queued(position: int | None, eta_s: int | None) -> dict[str, Any]:
    return {"position": position, "eta_s": eta_s, "tier": "free"}


@pytest.fixture
def waiting(alice: Visitor) -> Iterator[Visitor]:
    """Her slot is free again for other tests afterwards, though her page hears nothing of it."""
    yield alice
    with alice.page.expect_response("**/cancel"):
        alice.stop.click()


def be_told(visitor: Visitor, *waits: dict[str, Any]) -> None:
    """From now on the page's feed says this of the run that it follows."""
    body = "".join(f"event: queued\ndata: {json.dumps(wait)}\n\n" for wait in waits)

    def answer(route: Route) -> None:
        route.fulfill(content_type="text/event-stream", body=body)

    visitor.page.route("**/api/events?*run=*", answer)


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (queued(1, None), "Waiting: 1st in line."),
        (queued(2, 1), "Waiting: 2nd in line, about 1 s."),
        (queued(3, 12), "Waiting: 3rd in line, about 12 s."),
        (queued(111, 90), "Waiting: 111th in line, about 2 min."),
        (queued(1022, 7200), "Waiting: 1022nd in line, about 2 h."),
        (queued(None, None), "Waiting in the queue."),
    ],
)
def test_a_run_that_waits_says_where_and_how_long(waiting: Visitor, told: dict[str, Any], words: str) -> None:
    be_told(waiting, told)

    waiting.ask(SILENCE)

    expect(waiting.page.locator(".turn.live .note")).to_have_text(words)
    expect(waiting.status).to_have_text(words)


def test_a_screen_reader_is_not_told_each_change(waiting: Visitor) -> None:
    be_told(waiting, queued(3, 12), queued(3, 10), queued(2, 8))

    waiting.ask(SILENCE)

    expect(waiting.page.locator(".turn.live .note")).to_have_text("Waiting: 2nd in line, about 8 s.")
    expect(waiting.status).to_have_text("Waiting: 3rd in line, about 12 s.")
