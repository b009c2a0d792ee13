"""States of the page that say what can be done: at capacity, too large, offline, stalled; and its meters."""

from __future__ import annotations

import json
from typing import Any

from playwright.sync_api import Route, expect

from tests.browser.visitor import SILENCE, Visitor, scripted

FULL = {"code": "queue_full", "detail": "The queue is full.", "status": 503}
HEADERS = {"Retry-After": "3", "Content-Type": "application/problem+json"}


def test_at_capacity_the_page_counts_down_to_the_next_try(alice: Visitor) -> None:
    alice.page.clock.install()
    alice.page.route(
        # By another status: a 503 would be a complaint here.
        "**/messages",
        lambda route: route.fulfill(status=429, headers=HEADERS, body=json.dumps(FULL)),
        times=1,
    )
    question = scripted("Served.")
    alice.ask(question)
    countdown = alice.page.locator("#countdown")
    expect(alice.refusal).to_contain_text("Too many people wait")
    expect(countdown).to_have_text("0:03")
    alice.page.clock.run_for(1_100)
    expect(countdown).to_have_text("0:02")
    alice.page.clock.run_for(2_000)

    expect(alice.refusal).to_contain_text("You can try again now.")
    expect(countdown).to_be_hidden()
    expect(alice.composer).to_have_value(question)
    alice.page.clock.resume()
    alice.composer.press("Enter")
    expect(alice.answers).to_have_text(["Served."])
    expect(alice.refusal).to_be_hidden()


def test_a_message_that_is_too_large_says_so_before_it_is_sent(alice: Visitor) -> None:
    asked: list[str] = []
    alice.page.on("request", lambda request: asked.append(request.url) if request.method == "POST" else None)
    size = alice.page.locator("#size")
    alice.composer.fill("é" * 20_000)
    expect(size).to_be_hidden()
    alice.composer.fill("é" * 27_000)
    expect(size).to_have_text("52.7 of 64 KB")

    alice.ask("é" * 33_000)

    expect(size).to_have_text("64.5 of 64 KB: shorten it to send it")
    expect(alice.composer).to_have_value("é" * 33_000)
    assert asked == []
    alice.composer.fill("")
    expect(size).to_be_hidden()


def test_offline_is_said_and_what_was_written_goes_out_later(alice: Visitor) -> None:
    banner = alice.page.locator("#connection")
    alice.context.set_offline(True)
    expect(banner).to_contain_text("You are offline.")
    question = scripted("Back.")
    alice.composer.fill(question)
    alice.composer.press("Enter")
    expect(alice.refusal).to_contain_text("There is no connection to the server.", timeout=45_000)
    expect(alice.composer).to_have_value(question)

    alice.context.set_offline(False)

    expect(banner).to_be_hidden(timeout=45_000)
    alice.ask_and_wait(question, "Back.")


def test_an_answer_that_stands_still_says_so_until_it_goes_on(alice: Visitor) -> None:
    note = alice.page.locator(".turn.live .note")
    events: list[dict[str, Any]] = [{"attempt": 1, "model": "m"}, {"text": "Begun", "offset": 0}]
    body = f"event: started\nid: 1-0-0\ndata: {json.dumps(events[0])}\n\n"
    body += f"event: delta\nid: 1-1-5\ndata: {json.dumps(events[1])}\n\n"

    def answer(route: Route) -> None:
        if bodies:  # and nothing more is heard
            route.fulfill(content_type="text/event-stream", body=bodies.pop())

    bodies = [body]
    alice.page.route("**/api/events?*run=*", answer)
    alice.ask(SILENCE)
    expect(alice.answers).to_contain_text("Beg")
    expect(note).to_contain_text("No words for a while.")
    alice.page.unroute_all()
    alice.stop.click()
    expect(note).to_have_count(0)
    expect(alice.stop).to_be_hidden()


def test_meters_show_the_budget_and_the_chats_part_of_the_window(alice: Visitor) -> None:
    budget, context = alice.page.locator("#budget meter"), alice.page.locator("#context meter")
    expect(budget).to_be_visible()
    expect(context).to_be_hidden()
    limit = alice.api("/api/usage")["budget"]["tokens"]
    expect(budget).to_have_attribute("max", str(limit))

    alice.ask_and_wait(scripted("Measured."), "Measured.")

    expect(context).to_be_visible()
    assert 0 < float(context.get_attribute("value") or "") < float(context.get_attribute("max") or "")
