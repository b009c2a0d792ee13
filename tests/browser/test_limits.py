"""What a person is told when they cannot be served now, and that nothing they wrote is lost."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import psycopg
import pytest
from playwright.sync_api import expect
from psycopg import sql
from psycopg.rows import dict_row

from tests.browser.conftest import NewVisitor
from tests.browser.visitor import SILENCE, Visitor, scripted
from tests.stack.stack import Stack


@pytest.fixture
def one_at_a_time(scripted_stack: Stack) -> Iterator[None]:
    """The tier of whoever signs up allows a single live run."""
    change = "UPDATE scheduler_tier SET concurrency = %s WHERE slug = 'free'"
    with psycopg.connect(scripted_stack.database_url, autocommit=True) as connection:
        connection.execute(change, [1])
        yield
        connection.execute(change, [10_000])


def test_too_many_answers_at_once_are_refused_with_what_to_do_and_the_text_is_kept(
    one_at_a_time: None, alice: Visitor
) -> None:
    alice.ask(SILENCE)
    expect(alice.stop).to_be_visible()
    second = alice.another_tab("/")

    second.ask(scripted("Now."))

    expect(second.refusal).to_contain_text("Your plan allows so many answers at a time: 1.")
    expect(second.composer).to_have_value(scripted("Now."))
    alice.stop.click()
    expect(alice.stop).to_be_hidden()
    second.composer.press("Enter")
    expect(second.answers).to_have_text(["Now."])
    expect(second.refusal).to_be_hidden()


def test_a_chat_that_is_being_answered_takes_no_second_question(alice: Visitor) -> None:
    alice.ask(SILENCE)
    expect(alice.stop).to_be_visible()
    posted: list[str] = []
    alice.page.on("request", lambda request: posted.append(request.url) if request.method == "POST" else None)

    alice.composer.fill("Me too")
    alice.composer.press("Enter")

    expect(alice.refusal).to_contain_text("still being answered")
    expect(alice.composer).to_have_value("Me too")
    assert posted == []
    alice.stop.click()
    expect(alice.refusal).to_be_hidden()


def test_a_browser_that_did_not_know_learns_that_the_chat_is_busy(alice: Visitor, elsewhere: Visitor) -> None:
    alice.ask_and_wait(scripted("First."), "First.")
    second = elsewhere
    second.page.route("**/api/events*", lambda route: route.abort())
    second.page.goto(alice.page.url)
    alice.ask(SILENCE)
    expect(alice.stop).to_be_visible()

    second.ask("Me too")

    expect(second.refusal).to_contain_text("still being answered")
    expect(second.composer).to_have_value("Me too")
    expect(second.texts).to_have_text([scripted("First."), "First.", SILENCE, ""])
    second.stop.click()
    expect(alice.stop).to_be_hidden()


def test_what_cannot_be_sent_is_refused_in_words_and_kept_and_leaves_no_empty_chat(alice: Visitor) -> None:
    text = "x " * 30_000
    alice.ask(text)

    expect(alice.refusal).to_contain_text("more than the model can read. Shorten it.")
    expect(alice.composer).to_have_value(text)
    expect(alice.send).to_be_enabled()
    expect(alice.texts).to_have_count(0)
    alice.page.reload()
    expect(alice.chats).to_have_count(0)


def test_nothing_is_sent_for_a_blank_message(alice: Visitor) -> None:
    alice.page.on("request", lambda request: alice.complaints.append(request.url) if request.method == "POST" else None)

    alice.ask(" \n ")

    expect(alice.composer).to_have_value(" \n ")
    expect(alice.send).to_be_enabled()


def test_a_throttled_person_is_told_how_long_to_wait(alice: Visitor) -> None:
    problem = '{"code": "too_many_requests", "detail": "", "status": 429}'
    headers = {"Retry-After": "7", "Content-Type": "application/problem+json"}
    alice.page.route("**/api/chats", lambda route: route.fulfill(status=429, headers=headers, body=problem))

    alice.ask("Again")

    expect(alice.refusal).to_contain_text("Try again in 7 seconds.")
    expect(alice.composer).to_have_value("Again")


@pytest.fixture
def plan(scripted_stack: Stack) -> Iterator[Callable[..., None]]:
    """Changes numbers of the tier of whoever signs up, and brings them back."""
    with psycopg.connect(scripted_stack.database_url, autocommit=True, row_factory=dict_row) as connection:
        before = connection.execute("SELECT * FROM scheduler_tier WHERE slug = 'free'").fetchone()
        assert before

        def change(**numbers: int) -> None:
            for name, number in numbers.items():
                column = sql.Identifier(name)
                statement = sql.SQL("UPDATE scheduler_tier SET {} = %s WHERE slug = 'free'").format(column)
                connection.execute(statement, [number])

        yield change
        change(**{name: before[name] for name in ("budget_tokens", "refill_tokens_per_hour", "queue_depth")})
        change(queue_deadline_s=before["queue_deadline_s"])


def test_with_the_budget_used_up_a_person_is_told_the_time_on_their_own_clock_and_the_text_is_kept(
    visit: NewVisitor, plan: Callable[..., None]
) -> None:
    there = visit(timezone_id="Asia/Kathmandu", locale="en-GB")  # five hours and three quarters from UTC
    there.sign_up()
    there.page.goto("/")
    plan(budget_tokens=1100, refill_tokens_per_hour=60)
    there.ask(SILENCE)  # which may be as long as the budget allows
    expect(there.stop).to_be_visible()
    tab = there.another_tab("/")
    question = scripted("Now.")

    with tab.page.expect_response("**/messages") as refused:
        tab.ask(question)

    retry_at = datetime.fromisoformat(refused.value.json()["retry_at"]).astimezone(ZoneInfo("Asia/Kathmandu"))
    minute = retry_at + timedelta(seconds=59, milliseconds=999)
    assert refused.value.status == 429
    expect(tab.refusal).to_contain_text("more than is left of your budget")
    expect(tab.refusal).to_contain_text(f"{minute:%H:%M}. Try again then.")
    expect(tab.composer).to_have_value(question)
    there.stop.click()
    expect(there.stop).to_be_hidden()
    tab.composer.press("Enter")
    expect(tab.answers).to_have_text(["Now."])
    expect(tab.refusal).to_be_hidden()


def test_what_no_budget_can_hold_is_refused_in_words_and_kept(alice: Visitor, plan: Callable[..., None]) -> None:
    plan(budget_tokens=10)
    text = "word " * 20

    alice.ask(text)

    expect(alice.refusal).to_have_text("This is more than your whole budget. Shorten it.")
    expect(alice.composer).to_have_value(text)


def test_a_full_queue_is_told_with_when_to_come_back_and_the_text_is_kept(
    alice: Visitor, idle_model: str, plan: Callable[..., None]
) -> None:
    plan(queue_depth=1)
    alice.page.reload()
    alice.page.get_by_label("Model", exact=True).select_option(idle_model)
    alice.ask("First")
    expect(alice.stop).to_be_visible()
    second = alice.another_tab("/")
    second.page.get_by_label("Model", exact=True).select_option(idle_model)

    second.ask("Second")

    expect(second.refusal).to_have_text(
        re.compile(
            r"^(Too many people wait for an answer just now\. It may be worth another try in \d+ (seconds?|minutes)\.|"
            r"You can try again now\.)$"  # a second later, it may be
        )
    )
    expect(second.composer).to_have_value("Second")
    alice.complaints.clear()  # a 503 is one, and was meant
    alice.stop.click()
    expect(alice.stop).to_be_hidden()


def test_a_question_that_waited_in_vain_says_so_and_can_be_tried_again(
    alice: Visitor, idle_model: str, plan: Callable[..., None]
) -> None:
    plan(queue_deadline_s=1)
    alice.page.reload()
    alice.page.get_by_label("Model", exact=True).select_option(idle_model)

    alice.ask("Anybody?")

    expect(alice.note).to_have_text("No worker was free in time. It cost you nothing; try again.")
    expect(alice.composer).to_have_value("")
    plan(queue_deadline_s=1000)
    alice.retry.click()
    expect(alice.stop).to_be_visible()
    expect(alice.retry).to_be_hidden()
    alice.stop.click()
    expect(alice.note).to_have_text("Stopped.")


def test_the_usage_page_is_reached_from_the_chats_and_shows_what_was_used(alice: Visitor) -> None:
    alice.ask_and_wait(scripted("Here."), "Here.")

    alice.page.get_by_role("link", name="Usage").click()

    expect(alice.page.get_by_role("heading", name="Usage")).to_be_visible()
    expect(alice.page.get_by_role("meter")).to_be_visible()
    expect(alice.page.get_by_role("row")).to_have_count(2)
    for width in (320, 390, 1280):
        alice.page.set_viewport_size({"width": width, "height": 800})
        assert alice.page.evaluate("document.documentElement.scrollWidth") <= width
    alice.page.get_by_role("link", name="Back to your chats").click()
    expect(alice.composer).to_be_visible()
