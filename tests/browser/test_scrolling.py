"""Who follows the newest text, and who has scrolled away from it."""

from __future__ import annotations

import psycopg
import pytest
from playwright.sync_api import Locator, expect

from chat.pages import MESSAGES_A_PAGE
from tests.browser.visitor import DESKTOP, Visitor, scripted
from tests.stack.stack import Stack

IS_NEAR_END = "([r, px]) => r.scrollHeight - r.scrollTop - r.clientHeight < px"
LINES = "\n".join(f"line {number}" for number in range(60))
# Many lines in few tokens: five seconds of them.
GROWING_LINES = scripted("\n".join(str(number) for number in range(150)), unending=True)


@pytest.fixture
def region(alice: Visitor) -> Locator:
    """What scrolls."""
    return alice.page.get_by_role("region", name="Messages")


def expect_near_end(region: Locator, px: int) -> None:
    """Return once the text ends less than `px` below what is seen: the page follows at its next frame."""
    region.page.wait_for_function(IS_NEAR_END, arg=[region.element_handle(), px])


@pytest.fixture
def jump(alice: Visitor) -> Locator:
    return alice.page.get_by_role("button", name="Jump to latest")


def test_the_end_is_followed_until_the_reader_scrolls_away(alice: Visitor, region: Locator, jump: Locator) -> None:
    alice.ask_and_wait(scripted(LINES, tokens_per_step=20), LINES)
    expect_near_end(region, 80)
    expect(jump).to_be_hidden()

    region.evaluate("r => { r.scrollTop = 0 }")
    expect(jump).to_be_visible()
    alice.another_tab(alice.page.url).ask(scripted("More."))

    expect(alice.answers.last).to_have_text("More.")
    assert region.evaluate("r => r.scrollTop") == 0
    jump.click()
    expect(jump).to_be_hidden()
    expect_near_end(region, 80)


def test_a_small_turn_of_the_wheel_in_mid_answer_is_enough_to_stay_there(
    alice: Visitor, region: Locator, jump: Locator
) -> None:
    alice.ask(GROWING_LINES)
    expect(alice.answers).to_contain_text("40")
    region.hover()

    alice.page.mouse.wheel(0, -30)

    expect(jump).to_be_visible()
    there = region.evaluate("r => r.scrollTop")
    expect(alice.answers).to_contain_text("70")
    assert region.evaluate("r => r.scrollTop") == there
    alice.page.mouse.wheel(0, 100_000)
    expect(jump).to_be_hidden()
    expect(alice.answers).to_contain_text("90")
    expect_near_end(region, 80)
    alice.stop.click()


def test_a_keyboard_that_slides_in_and_a_long_draft_leave_the_reader_at_the_end(
    alice: Visitor, region: Locator, jump: Locator
) -> None:
    alice.ask_and_wait(scripted(LINES, tokens_per_step=20), LINES)

    for height in (400, DESKTOP["height"], 300):
        alice.page.set_viewport_size({"width": DESKTOP["width"], "height": height})
        expect(jump).to_be_hidden()
        expect_near_end(region, 1)
    alice.page.set_viewport_size(DESKTOP)
    for draft in (LINES, ""):
        alice.composer.fill(draft)
        alice.page.evaluate("() => new Promise(requestAnimationFrame)")
        expect(jump).to_be_hidden()
    expect_near_end(region, 1)


def test_a_scroll_that_is_told_after_the_sizes_have_changed_is_not_the_readers(
    alice: Visitor, region: Locator, jump: Locator
) -> None:
    alice.ask_and_wait(scripted(LINES, tokens_per_step=20), LINES)

    region.evaluate("r => { r.style.maxBlockSize = '12rem'; r.dispatchEvent(new Event('scroll')) }")

    expect(jump).to_be_hidden()
    alice.page.evaluate("() => new Promise(requestAnimationFrame)")
    expect_near_end(region, 1)


MANY = 4 * MESSAGES_A_PAGE
MESSAGES = """
    INSERT INTO chat_message (id, chat_id, position, role, content, token_count)
    SELECT gen_random_uuid(), %s, n, CASE n %% 2 WHEN 0 THEN 'user' ELSE 'assistant' END,
           'Number ' || n || repeat(E'\n\nand more', n %% 5), 1
      FROM generate_series(0, %s - 1) AS n
"""
PLACE_OF = "turn => turn.getBoundingClientRect().top"


@pytest.fixture
def long_chat(alice: Visitor, scripted_stack: Stack) -> None:
    """Before the newest of many messages."""
    chat_id = alice.open_chat("Long")
    with psycopg.connect(scripted_stack.database_url, autocommit=True) as connection:
        connection.execute(MESSAGES, [chat_id, MANY])
    alice.page.goto(f"/chats/{chat_id}")


def test_earlier_messages_come_as_one_scrolls_up_and_nothing_jumps(
    alice: Visitor, region: Locator, long_chat: None
) -> None:
    expect(alice.texts).to_have_count(MESSAGES_A_PAGE)
    turn = alice.page.locator(".turn").first.element_handle()
    for shown in range(2 * MESSAGES_A_PAGE, MANY + 1, MESSAGES_A_PAGE):
        region.evaluate("r => { r.scrollTop = 300 }")
        there = turn.evaluate(PLACE_OF)
        expect(alice.texts).to_have_count(shown)
        assert abs(turn.evaluate(PLACE_OF) - there) <= 1
        turn = alice.page.locator(".turn").first.element_handle()

    expect(alice.page.locator("#earlier")).to_have_count(0)
    texts = [text.split("\n")[0] for text in alice.texts.all_inner_texts()]
    assert texts == [f"Number {number}" for number in range(MANY)]


def test_the_link_to_earlier_messages_is_there_while_they_cannot_be_had(
    alice: Visitor, region: Locator, long_chat: None
) -> None:
    alice.page.route("**/chats/*?cursor=*", lambda route: route.abort())
    region.evaluate("r => { r.scrollTop = 0 }")
    alice.page.wait_for_timeout(500)
    alice.page.unroute_all()

    alice.page.locator("#earlier").click()

    expect(alice.texts).to_have_count(2 * MESSAGES_A_PAGE)
    expect(alice.page.locator(".turn").first).to_be_focused()


# Two hundred paragraphs that come at once, as to a page that is opened in mid-answer; and their height on the way up.
WALK = """async () => {
  const module = performance.getEntriesByType("resource").find(({ name }) => /\\/markdown\\.[^/]*js$/.test(name)).name;
  const { Markdown } = await import(module);
  const answer = document.querySelector("#turns").appendChild(document.createElement("li"));
  answer.className = "turn assistant live";
  const text = answer.appendChild(document.createElement("div"));
  text.className = "text markup";
  const paragraph = "Nobody reads all of this, but somebody may look it up. ".repeat(9).concat("\\n\\n");
  new Markdown(text).write(paragraph.repeat(200));
  const region = document.querySelector("#scroll");
  const frame = () => new Promise(requestAnimationFrame);
  const heights = [];
  await frame();
  await frame();
  for (region.scrollTop = region.scrollHeight; region.scrollTop > 0; region.scrollTop -= 400) {
    await frame();
    await frame();
    heights.push(text.offsetHeight);
  }
  return heights;
}"""


def test_a_long_answer_keeps_its_height_whichever_part_was_seen(alice: Visitor) -> None:
    heights: list[int] = alice.page.evaluate(WALK)

    assert len(heights) > 20
    assert max(heights) - min(heights) <= 2
