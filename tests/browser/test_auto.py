"""Auto in the picker, with the default model busy: who is sent to the small one is told so, and who is not is not."""

from __future__ import annotations

import time
from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest
from playwright.sync_api import Locator, expect
from redis import Redis

from inference import reports
from scheduler.load import AGAIN_S
from tests.browser.conftest import NewVisitor
from tests.browser.visitor import SILENCE, Visitor, scripted
from tests.stack.stack import MODEL, Stack, copy_model, started

BUSY = f"Answered by Small, since {MODEL} was busy."


@pytest.fixture(scope="module")
def small(scripted_stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A second model with a worker, to which Free goes as soon as one run is at the default model's 64 slots."""
    slug = f"small-{uuid4().hex[:8]}"
    folder = tmp_path_factory.mktemp("small")
    with psycopg.connect(scripted_stack.database_url, autocommit=True) as connection:
        copy_model(connection, slug, "Small")
        rules = "INSERT INTO scheduler_routingrule (position, tier_id, least_load_percent, model_id, note)"
        connection.execute(
            f"{rules} VALUES (1, 'free', 1, %(slug)s, ''), (2, 'pro', 9999, %(slug)s, '')", {"slug": slug}
        )
        environ = {**scripted_stack.environ, "READY_FILE": str(folder / "ready")}
        arguments = ["inference.worker", "--model", slug, "--worker-name", "small@test"]
        worker = started("small", arguments, environ, folder)
        try:
            until_reported(scripted_stack, slug, 0)
            yield slug
        finally:
            worker.stop()
            connection.execute("DELETE FROM scheduler_routingrule WHERE model_id = %s", [slug])
            connection.execute("UPDATE scheduler_model SET is_active = false WHERE slug = %s", [slug])


@pytest.fixture
def busy(scripted_stack: Stack, small: str, visit: NewVisitor) -> Iterator[None]:
    """The default model has a run of somebody in hand who picked it, and its worker has said so."""
    somebody = visit()
    somebody.sign_up()
    somebody.page.goto("/")
    somebody.page.get_by_label("Model", exact=True).select_option(MODEL)
    somebody.ask(SILENCE)
    until_reported(scripted_stack, MODEL, 1)
    time.sleep(1.5 * AGAIN_S)  # by then no web process remembers the load from before
    yield
    with somebody.page.expect_response("**/cancel"):
        somebody.stop.click()


def until_reported(stack: Stack, model: str, in_hand: int) -> None:
    """Raises `TimeoutError` where no worker of the model says so before long."""
    deadline = time.monotonic() + 60
    with Redis.from_url(stack.streams_url) as redis:
        while time.monotonic() < deadline:
            told = [seen.report.tiers for seen in reports.read(redis) if seen.report.model == model]
            if told and sum(tier.in_hand for tiers in told for tier in tiers.values()) >= in_hand:
                return
            time.sleep(0.1)
    raise TimeoutError(model)


def answered_by(visitor: Visitor) -> Locator:
    """What can be seen of it."""
    return visitor.page.locator(".answered-by:visible")


@pytest.mark.usefixtures("busy")
def test_free_is_told_while_it_waits_and_for_good_that_the_small_model_answers(alice: Visitor) -> None:
    alice.page.reload()
    expect(alice.page.get_by_label("Model", exact=True)).to_have_value("auto")

    alice.ask(SILENCE)
    expect(alice.page.locator(".turn.live")).to_be_visible()
    expect(answered_by(alice)).to_have_text(BUSY)
    expect(alice.status).to_contain_text(BUSY)
    alice.stop.click()
    expect(answered_by(alice)).to_have_count(0)  # there is no answer

    alice.ask_and_wait(scripted("Here."), "Here.")

    expect(answered_by(alice)).to_have_text([BUSY])
    alice.page.reload()
    expect(answered_by(alice)).to_have_text([BUSY])
    expect(alice.page.get_by_label("Model", exact=True)).to_have_value("auto")


@pytest.mark.usefixtures("busy")
def test_pro_is_answered_by_the_default_model(alice: Visitor, scripted_stack: Stack) -> None:
    with psycopg.connect(scripted_stack.database_url, autocommit=True) as connection:
        connection.execute("UPDATE chat_user SET tier_id = 'pro' WHERE username = %s", [alice.name])
    alice.page.reload()

    alice.ask_and_wait(scripted("Mine."), "Mine.")

    expect(answered_by(alice)).to_have_text([f"Answered by {MODEL}."])


@pytest.mark.usefixtures("busy")
def test_without_scripts_the_page_says_so_too(visit: NewVisitor) -> None:
    reader = visit(java_script_enabled=False)
    reader.sign_up()
    reader.page.goto("/")
    reader.composer.fill(SILENCE)
    reader.send.click()
    expect(reader.page.get_by_text("The answer is being written.")).to_be_visible()
    expect(answered_by(reader)).to_have_text([BUSY])
    reader.page.get_by_role("button", name="Stop").click()

    reader.composer.fill(scripted("Here."))
    reader.send.click()

    expect(reader.answers).to_have_text(["Here."])
    expect(answered_by(reader)).to_have_text([BUSY])
