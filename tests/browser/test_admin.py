"""An operator in a browser: forms and log work under the content policy, through the real server."""

from __future__ import annotations

import re

import psycopg
from playwright.sync_api import expect

from tests.browser.conftest import NewVisitor
from tests.browser.visitor import Visitor
from tests.stack.stack import Stack


def test_an_operator_grants_an_override_and_finds_it_in_the_audit_log(
    visit: NewVisitor, alice: Visitor, scripted_stack: Stack
) -> None:
    operator = visit()
    operator.sign_up()
    with psycopg.connect(scripted_stack.database_url) as connection:
        connection.execute(
            "UPDATE chat_user SET is_staff = true, is_superuser = true WHERE username = %s", [operator.name]
        )
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
