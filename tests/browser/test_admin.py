"""An operator in a browser: forms and log work under the content policy, through the real server."""

from __future__ import annotations

import re

import psycopg
import pytest
from playwright.sync_api import expect

from tests.browser.conftest import NewVisitor
from tests.browser.visitor import SILENCE, Visitor
from tests.stack.stack import Stack


@pytest.fixture
def operator(visit: NewVisitor, scripted_stack: Stack) -> Visitor:
    """Signed in, with all permissions."""
    visitor = visit()
    visitor.sign_up()
    with psycopg.connect(scripted_stack.database_url) as connection:
        connection.execute(
            "UPDATE chat_user SET is_staff = true, is_superuser = true WHERE username = %s", [visitor.name]
        )
    return visitor


def test_an_operator_grants_an_override_and_finds_it_in_the_audit_log(operator: Visitor, alice: Visitor) -> None:
    page = operator.page
    page.goto(f"/admin/chat/user/?q={alice.name}")
    page.get_by_role("link", name=alice.name).click()
    expect(page.get_by_text(re.compile(r"^[\d,]+ of [\d,]+ tokens"))).to_be_visible()

    page.locator("#id_override-0-until_0").fill("2099-12-31")
    page.locator("#id_override-0-until_1").fill("12:00:00")
    page.get_by_role("spinbutton", name="Concurrency").fill("7")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_text("was changed successfully")).to_be_visible()

    page.goto("/admin/auditlog/logentry/")
    row = page.get_by_role("row").filter(has_text=alice.name).filter(has_text="override")
    expect(row).to_contain_text(operator.name)
    expect(row).to_contain_text("concurrency: None → 7")


def test_an_operator_finds_a_stopped_run_reads_what_was_asked_and_has_it_done_again(
    operator: Visitor, alice: Visitor
) -> None:
    alice.ask(SILENCE)
    alice.stop.click()
    expect(alice.stop).to_be_hidden()
    page = operator.page

    page.goto(f"/admin/chat/run/?q={alice.name}")
    filters = page.get_by_role("navigation", name="Filter")
    filters.get_by_role("link", name="asked within the last hour").click()
    filters.get_by_role("link", name="Cancelled").click()
    rows = page.locator("#result_list tbody tr")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text(alice.name)

    rows.get_by_role("link").first.click()
    page.locator(".field-prompt_link").get_by_role("link").click()
    expect(page.locator("#content")).not_to_contain_text("[[script")
    page.get_by_role("link", name="Read content").click()
    expect(page.locator(".field-content")).to_contain_text("[[script")
    page.locator(".field-chat_link").get_by_role("link").click()
    page.get_by_role("link", name="runs", exact=True).click()

    page.locator("#result_list tbody .action-select").check()
    page.get_by_label("Action:").select_option(label="Retry the selected runs, for their owners")
    page.get_by_role("button", name="Go").click()
    expect(page.get_by_text("1 of 1 retried.")).to_be_visible()
    expect(rows).to_have_count(2)

    page.locator("#action-toggle").check()
    page.get_by_label("Action:").select_option(label="Cancel the selected runs")
    page.get_by_role("button", name="Go").click()
    expect(page.get_by_text("1 told to stop. 1 had ended.")).to_be_visible()

    page.goto("/admin/auditlog/logentry/")
    expect(page.get_by_role("row").filter(has_text=operator.name).filter(has_text="access").first).to_be_visible()


def test_no_page_breaks_the_content_policy(operator: Visitor) -> None:
    """A browser that complains fails the test."""
    for address in (
        *("", "chat/user/", "chat/apikey/", "chat/chat/", "chat/message/", "chat/run/", "chat/summary/", "load/"),
        *("scheduler/tier/", "scheduler/tier/free/change/", "scheduler/model/", "scheduler/model/add/"),
        *("scheduler/ledgerentry/", "auditlog/logentry/", "auth/group/add/", "chat/user/add/", "password_change/"),
    ):
        operator.page.goto(f"/admin/{address}")
        expect(operator.page.locator("#content")).to_be_visible()
