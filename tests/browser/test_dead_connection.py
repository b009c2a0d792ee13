"""Connections that die without a word: the page notices, and nobody waits for ever."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import NewVisitor
from tests.browser.visitor import LONG, UNENDING, Visitor, scripted
from tests.browser.wire import Wire, wire_to
from tests.stack.stack import Stack

SLOW = scripted(LONG, split_characters=True)


@pytest.fixture
def wire(scripted_stack: Stack) -> Iterator[Wire]:
    with wire_to(scripted_stack.port) as wire:
        yield wire


@pytest.fixture
def far_alice(visit: NewVisitor, wire: Wire) -> Visitor:
    """Alice, whose connections go over the wire."""
    visitor = visit(address=wire.address)
    visitor.page.clock.install()
    visitor.sign_up()
    visitor.page.goto("/")
    return visitor


def test_a_dead_connection_is_noticed_when_beats_are_missing(far_alice: Visitor, wire: Wire) -> None:
    far_alice.ask(SLOW)
    expect(far_alice.answers).to_contain_text("word3")

    wire.cut()
    far_alice.page.clock.fast_forward("00:40")

    expect(far_alice.answers).to_have_text([LONG])
    expect(far_alice.stop).to_be_hidden()


def test_a_connection_is_not_trusted_after_the_network_has_changed(far_alice: Visitor, wire: Wire) -> None:
    far_alice.ask(SLOW)
    expect(far_alice.answers).to_contain_text("word3")

    wire.cut()
    far_alice.page.evaluate("dispatchEvent(new Event('online'))")

    expect(far_alice.answers).to_have_text([LONG])


def test_stop_over_a_dead_connection_shows_that_it_was_stopped(far_alice: Visitor, wire: Wire) -> None:
    far_alice.ask(UNENDING)
    expect(far_alice.answers).to_contain_text("word3")
    wire.cut()

    with far_alice.page.expect_response("**/cancel"):
        far_alice.stop.click()
    far_alice.page.clock.fast_forward("00:11")

    expect(far_alice.note).to_have_text("Stopped.")
    expect(far_alice.stop).to_be_hidden()


def test_a_server_that_does_not_answer_is_not_waited_for_for_ever(alice: Visitor) -> None:
    alice.page.add_init_script("AbortSignal.timeout = () => AbortSignal.abort(new DOMException('', 'TimeoutError'))")
    alice.page.reload()

    alice.ask("Do not lose this")

    expect(alice.refusal).to_contain_text("The server does not answer.")
    expect(alice.composer).to_have_value("Do not lose this")
