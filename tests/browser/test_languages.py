"""The page in other languages, one of them written from right to left; and on a telephone."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.browser.conftest import NewVisitor
from tests.browser.visitor import PHONE, SILENCE, Visitor, scripted

OFFLINE_IN_CHINESE = "您已离线。您写的内容会保留，恢复连接后页面会继续。"


def arrived(visit: NewVisitor, alice: Visitor, **options: object) -> Visitor:
    """Alice, in another browser."""
    visitor = visit(storage_state=alice.context.storage_state(), **options)
    visitor.page.goto("/")
    return visitor


def test_in_persian_all_is_mirrored_and_said_in_persian(visit: NewVisitor, alice: Visitor) -> None:
    sara = arrived(visit, alice, locale="fa-IR")
    page = sara.page
    expect(page.locator("html")).to_have_attribute("dir", "rtl")
    expect(page.locator("#content")).to_have_attribute("placeholder", "پیامی به Palaver بنویسید")
    sidebar, main = page.locator("#sidebar").bounding_box(), page.locator("#main").bounding_box()
    assert sidebar
    assert main
    assert sidebar["x"] > main["x"]  # on the right
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")

    page.locator("#content").fill(SILENCE)
    page.locator("#content").press("Enter")

    expect(page.locator(".turn.live .note")).to_have_text("در حال فکر…")
    page.locator("#stop").click()
    expect(sara.note).to_have_text("متوقف شد.")
    expect(page.locator("#retry")).to_have_text("تلاش دوباره")
    expect(page.locator("#chat-list .day")).to_have_text("امروز")


def test_code_stays_left_to_right_in_a_page_that_is_not(visit: NewVisitor, alice: Visitor) -> None:
    sara = arrived(visit, alice, locale="fa-IR")
    sara.page.locator("#content").fill(scripted("سلام:\n\n```python\nprint(1)\n```\n"))
    sara.page.locator("#content").press("Enter")

    expect(sara.answers.locator("pre")).to_have_css("direction", "ltr")
    expect(sara.answers.locator("p").first).to_have_css("direction", "rtl")


def test_a_refusal_is_told_in_chinese(visit: NewVisitor, alice: Visitor) -> None:
    li = arrived(visit, alice, locale="zh-CN")
    li.page.locator("#content").fill("x " * 30_000)
    li.page.locator("#content").press("Enter")

    expect(li.refusal).to_have_text("这超出了模型可读的长度。请缩短。")
    li.context.set_offline(True)
    expect(li.page.locator("#connection")).to_contain_text(OFFLINE_IN_CHINESE)  # which a script says
    li.context.set_offline(False)


def test_a_language_is_chosen_before_signing_in_and_kept(visit: NewVisitor) -> None:
    visitor = visit()
    visitor.page.goto("/sign-in?next=/usage")
    visitor.page.get_by_role("button", name="简体中文").click()

    expect(visitor.page.get_by_role("heading", name="登录")).to_be_visible()
    assert visitor.page.url.endswith("/sign-in?next=/usage")
    visitor.page.goto("/sign-up")
    expect(visitor.page.get_by_role("heading", name="注册")).to_be_visible()


def test_on_a_telephone_enter_breaks_the_line_and_the_button_sends(visit: NewVisitor, alice: Visitor) -> None:
    held = arrived(visit, alice, viewport=PHONE, is_mobile=True, has_touch=True)
    expect(held.send).to_be_enabled()
    held.composer.fill("one")
    held.composer.press("Enter")
    held.composer.press_sequentially("two")
    expect(held.composer).to_have_value("one\ntwo")
    assert held.composer.evaluate("field => parseFloat(getComputedStyle(field).fontSize)") >= 16

    held.send.tap()

    expect(held.texts.first).to_have_text("one\ntwo")
    expect(held.retry).to_be_visible()
