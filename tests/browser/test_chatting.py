"""Asking and reading: the text grows, survives a reload, can be stopped and tried again."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from tests.browser.visitor import GROWING, LONG, SILENCE, UNENDING, Visitor, scripted

# As many characters as it has tokens, and every kind of them.
WATCH = """() => {
  window.lengths = [];
  const look = () => {
    const text = document.querySelector(".turn.assistant .text")?.textContent ?? "";
    if (text.length > (window.lengths.at(-1) ?? 0)) window.lengths.push(text.length);
  };
  new MutationObserver(look).observe(document.querySelector("#turns"),
    { childList: true, characterData: true, subtree: true });
}"""


def lengths(page: Page) -> list[int]:
    """How long the first answer was each time that it had grown since `WATCH`."""
    found: list[int] = page.evaluate("window.lengths")
    return found


def test_an_answer_grows_step_by_step_and_is_what_was_stored(alice: Visitor) -> None:
    alice.page.evaluate(WATCH)
    alice.ask_and_wait(GROWING, LONG)

    assert len(lengths(alice.page)) >= 3
    assert alice.stored == [GROWING, LONG]
    assert re.search(r"/chats/[0-9a-f-]{36}$", alice.page.url)
    expect(alice.composer).to_have_value("")
    expect(alice.composer).to_be_focused()
    expect(alice.status).to_have_text(f"Answer complete. {LONG}")


def test_a_reload_in_mid_answer_goes_on_and_ends_with_the_whole_answer_once(alice: Visitor) -> None:
    alice.ask(scripted(LONG, split_characters=True))
    expect(alice.answers).to_contain_text("word3")

    alice.page.reload()

    expect(alice.answers).to_contain_text("word3")
    expect(alice.stop).to_be_visible()
    expect(alice.answers).to_have_text([LONG])
    expect(alice.stop).to_be_hidden()
    assert [alice.answers.inner_text()] == alice.stored[1:]
    alice.page.reload()
    expect(alice.answers).to_have_text([LONG])


def test_stop_keeps_the_text_so_far_and_retry_replaces_it(alice: Visitor) -> None:
    alice.ask(UNENDING)
    expect(alice.answers).to_contain_text("word3")

    alice.stop.click()

    expect(alice.note).to_have_text("Stopped.")
    expect(alice.status).to_have_text("Stopped.")
    expect(alice.composer).to_be_focused()
    begun = alice.answers.inner_text()
    assert LONG.startswith(begun)
    assert [text.rstrip() for text in alice.stored[1:]] == [begun]  # a page shows no blank at the end
    alice.retry.click()
    expect(alice.note).to_be_hidden()  # and with it the answer before, which may have the same words
    expect(alice.answers).to_contain_text("word58")
    alice.stop.click()
    expect(alice.stop).to_be_hidden()
    alice.page.reload()
    expect(alice.answers).to_have_text([LONG])


def test_escape_stops_what_has_not_begun_and_leaves_a_question_to_retry(alice: Visitor) -> None:
    alice.ask(SILENCE)
    expect(alice.stop).to_be_visible()

    alice.composer.press("Escape")

    expect(alice.note).to_have_text("Stopped.")
    expect(alice.answers).to_have_count(0)
    expect(alice.retry).to_be_visible()
    alice.page.reload()
    expect(alice.note).to_have_text("Stopped.")
    expect(alice.retry).to_be_visible()


def test_while_another_try_is_written_the_old_answer_is_hidden_and_comes_back_if_it_fails(alice: Visitor) -> None:
    alice.ask_and_wait(scripted("First."), "First.")
    alice.page.route("**/retry", lambda route: route.abort())
    alice.retry.click()
    expect(alice.refusal).to_contain_text("no connection")
    expect(alice.answers).to_have_text(["First."])
    alice.page.unroute("**/retry")

    alice.retry.click()

    expect(alice.answers).to_have_text(["First."])
    expect(alice.stop).to_be_hidden()
    assert alice.stored == [scripted("First."), "First."]


def test_a_failure_says_what_happened_and_offers_another_try(alice: Visitor) -> None:
    alice.ask(scripted("Half of it", failure="generation_failed", fail_after_tokens=3))

    expect(alice.note).to_have_text("The model failed while it wrote this answer.")
    expect(alice.status).to_have_text("The model failed while it wrote this answer.")
    expect(alice.retry).to_be_visible()
    expect(alice.send).to_be_enabled()
    alice.page.reload()
    expect(alice.note).to_have_text("The model failed while it wrote this answer.")


def test_a_failure_that_another_try_would_meet_again_leads_to_a_new_chat(alice: Visitor) -> None:
    alice.ask(scripted("", failure="prompt_rejected"))

    expect(alice.note).to_have_text("The model does not take this conversation.")
    expect(alice.retry).to_be_hidden()
    for _ in range(2):
        expect(alice.page.locator("#tail").get_by_role("link", name="New chat")).to_be_visible()
        alice.page.reload()


def test_what_was_sent_is_shown_at_once(alice: Visitor) -> None:
    alice.page.route("**/messages", lambda _: None)  # the answer to it never comes

    alice.ask("Still on its way")

    expect(alice.texts).to_have_text(["Still on its way"])
    expect(alice.page.get_by_text("What would you like to know?")).to_be_hidden()
    expect(alice.composer).to_have_value("")
    expect(alice.composer).to_be_focused()
    expect(alice.send).to_be_disabled()
    alice.page.unroute_all()


def test_markup_is_text_in_questions_answers_and_titles(alice: Visitor) -> None:
    hostile = "<b>bold</b> <img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script> &amp;"
    markup = alice.page.locator("#main :is(img, script, b), #sidebar :is(img, script, b)")
    read = hostile.replace("&amp;", "&")  # as Markdown has it
    alice.ask_and_wait(scripted(hostile, tokens_per_step=1000), read)  # in one piece
    expect(alice.chats).to_contain_text(["<b>bold</b>"])
    expect(markup).to_have_count(0)

    alice.page.reload()

    expect(alice.answers).to_have_text([read])
    expect(markup).to_have_count(0)
    assert alice.page.title() != "owned"


def test_every_script_and_white_space_arrives_as_it_was_written(alice: Visitor) -> None:
    within = "    indented\n\ttab\nतेज़ 狐"
    text = f"روباه 👩‍👩‍👧‍👦 e\u0301 השועל\n\n```\n{within}\n```"
    alice.ask(scripted(text, split_characters=True))
    expect(alice.stop).to_be_hidden()
    expect(alice.retry).to_be_visible()
    alice.page.reload()

    assert alice.answers.locator("p").text_content() == "روباه 👩‍👩‍👧‍👦 e\u0301 השועל"
    assert (alice.answers.locator("pre").text_content() or "").rstrip("\n") == within
    assert alice.stored[1] == text


RICH = """# Fox

A **bold** _and_ `code` word, [a link](https://example.org/), ~~not~~ \\(x^2\\).

1. one
2. two

| a | b |
| --- | --- |
| 1 | 2 |

```py
print("fox")
```
"""
SEEN = (
    "h3",
    "strong",
    "em",
    "p code",
    "a[target=_blank]",
    "s",
    ".math.inline",
    "ol li",
    ".wide th",
    ".wide td",
    "pre code",
)


def test_markdown_is_set_while_it_is_written_and_the_same_when_it_is_loaded_again(alice: Visitor) -> None:
    alice.ask(scripted(RICH, split_characters=True))

    expect(alice.answers.locator("pre code")).to_contain_text("print")
    for part in SEEN:
        expect(alice.answers.locator(part).first).to_be_visible()
    expect(alice.stop).to_be_hidden()
    expect(alice.answers).to_have_attribute("class", "text markup")
    alice.page.reload()
    for part in SEEN:
        expect(alice.answers.locator(part).first).to_be_visible()


def test_enter_sends_shift_enter_breaks_the_line_and_composing_does_neither(alice: Visitor) -> None:
    expect(alice.send).to_be_enabled()
    alice.composer.fill("one")
    alice.composer.press("Shift+Enter")
    alice.composer.press_sequentially("two")
    for composing in ({"isComposing": True}, {"keyCode": 229}):
        alice.composer.dispatch_event("keydown", {"key": "Enter", "bubbles": True, "cancelable": True, **composing})
    expect(alice.composer).to_have_value("one\ntwo")

    alice.composer.press("Enter")

    expect(alice.texts.first).to_have_text("one\ntwo")
    expect(alice.retry).to_be_visible()
    assert alice.stored[0] == "one\ntwo"
