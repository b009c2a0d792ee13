"""Answers as markup in a browser: nothing hostile acts, code is coloured, formulas are set, all is copied."""

from __future__ import annotations

import psycopg
import pytest
from playwright.sync_api import Request, expect

from chat.markup import ATTRIBUTES, TAGS
from tests.browser.visitor import Visitor, scripted
from tests.hostile_markdown import HOSTILE
from tests.stack.stack import Stack

# What may stand in an answer beside what the server makes; KaTeX's formulas are looked at from outside.
OURS = {*TAGS, "button"}
ATTRIBUTES_OF_OURS = {
    *(name for names in ATTRIBUTES.values() for name in names),
    "rel",
    "data-plain",
    "data-act",
    "type",
}
WATCH = """
  window.violations = [];
  document.addEventListener("securitypolicyviolation", ({ violatedDirective, blockedURI }) =>
    violations.push(`${violatedDirective} ${blockedURI}`));
  window.alert = () => violations.push("alert");
"""
# Each text as it comes from a model, some characters at a time, by the page's own module.
STREAM = """async ([texts, step]) => {
  const module = performance.getEntriesByType("resource").find(({ name }) => /\\/markdown\\.[^/]*js$/.test(name)).name;
  const { Markdown } = await import(module);
  const place = document.querySelector("#turns").appendChild(document.createElement("li"));
  for (const text of texts) {
    const answer = place.appendChild(document.createElement("div"));
    answer.className = "text markup streamed";
    const markdown = new Markdown(answer);
    for (let at = 0; at < text.length; at += step) markdown.write(text.slice(at, at + step));
    markdown.end();
  }
}"""
FOUND = """() => [...document.querySelectorAll("#turns .text")].flatMap((text) => [...text.querySelectorAll("*")])
  .filter((each) => !each.closest("math"))
  .map((each) => [each.localName, Object.fromEntries([...each.attributes].map(({ name, value }) => [name, value]))])"""
LONGEST = 12_000  # the longer ones are about cost, and tried in Python
SHORT = [text for text in HOSTILE if len(text) <= LONGEST]
PLAIN = [text for text in SHORT if "\0" not in text]  # Postgres stores none


@pytest.fixture
def watched(alice: Visitor) -> Visitor:
    """Her browser notes what the page's policy had to stop, and asks of other hosts."""
    alice.context.add_init_script(WATCH)
    alice.page.on("request", lambda request: _note(alice, request))
    return alice


def _note(visitor: Visitor, request: Request) -> None:
    if "evil.example" in request.url:
        visitor.complaints.append(f"asked for {request.url}")


def assert_harmless(visitor: Visitor) -> None:
    """Nothing was tried, and nothing stands there that could be."""
    found: list[tuple[str, dict[str, str]]] = visitor.page.evaluate(FOUND)
    assert len(found) > len(PLAIN)
    for tag, attributes in found:
        assert tag in OURS, tag
        assert set(attributes) <= ATTRIBUTES_OF_OURS, (tag, attributes)
        if "href" in attributes:
            assert attributes["href"].split(":")[0] in {"http", "https", "mailto"}, attributes
            assert attributes["rel"] == "noopener noreferrer nofollow"
            assert attributes["target"] == "_blank"
    assert visitor.page.evaluate("window.violations") == []


@pytest.mark.parametrize("step", [1, 100_000])
def test_nothing_hostile_acts_while_it_is_written(watched: Visitor, step: int) -> None:
    watched.page.goto("/")
    expect(watched.send).to_be_enabled()
    watched.page.evaluate(STREAM, [SHORT, step])
    watched.page.wait_for_timeout(300)  # for what would load or run

    assert_harmless(watched)


def test_nothing_hostile_acts_when_it_is_read_again(watched: Visitor, scripted_stack: Stack) -> None:
    chat_id = watched.open_chat("Hostile")
    with psycopg.connect(scripted_stack.database_url, autocommit=True) as connection:
        connection.cursor().executemany(
            "INSERT INTO chat_message (id, chat_id, position, role, content, token_count)"
            " VALUES (gen_random_uuid(), %s, %s, 'assistant', %s, 1)",
            [(chat_id, position, text) for position, text in enumerate(PLAIN)],
        )
    for _ in PLAIN:
        read_whole(watched, chat_id)
        if not watched.page.locator(".turn.assistant .text:not(.markup)").count():
            break  # a page sets as many as half a second is enough for

    assert_harmless(watched)


def read_whole(visitor: Visitor, chat_id: str) -> None:
    """Open a chat, up to its first message."""
    visitor.page.goto(f"/chats/{chat_id}")
    while visitor.page.locator("#earlier").count():
        shown = visitor.answers.count()
        visitor.page.locator("#earlier").evaluate("link => link.click()")
        expect(visitor.answers).not_to_have_count(shown)
    expect(visitor.answers).to_have_count(len(PLAIN))


CODE = "```python\ndef fox(n: int) -> str:\n    return 'fox' * n  # jumps\n```"
TEX = r"Let \(x^2\) be. \[\boxed{\frac{a}{b}}\] And $$\sum_{i=0}^{n} i$$ It costs $5 and $6."


def test_code_is_coloured_once_and_copied_as_it_was_written(watched: Visitor) -> None:
    watched.context.grant_permissions(["clipboard-read", "clipboard-write"])
    watched.page.goto("/")
    watched.ask(scripted(f"So:\n\n{CODE}\n\nThat is it.", split_characters=True))
    code = watched.answers.locator("pre code")
    expect(code.locator(".hljs-keyword").first).to_have_text("def")
    code.evaluate("(node) => (window.seen = node)")
    expect(watched.page.locator(".turn.assistant .facts")).to_contain_text("written")  # the server's own by now
    assert code.evaluate("(node) => node === window.seen")  # handed over, not coloured again
    expect(watched.answers.locator(".language")).to_have_text("python")

    watched.answers.get_by_role("button", name="Copy").click()

    expect(watched.answers.get_by_role("button", name="Copied")).to_be_visible()
    assert watched.page.evaluate("navigator.clipboard.readText()") == CODE[len("```python\n") : -len("\n```")]
    watched.page.reload()
    expect(code.locator(".hljs-keyword").first).to_have_text("def")
    assert watched.page.evaluate("window.violations") == []


def test_formulas_are_set_when_they_are_closed_and_prices_are_not(watched: Visitor) -> None:
    watched.page.goto("/")
    watched.ask(scripted(TEX, split_characters=True))
    for _ in range(2):
        expect(watched.answers.locator("math")).to_have_count(3)
        expect(watched.page.locator(".turn.assistant .facts")).to_contain_text("written")
        expect(watched.answers).to_contain_text("It costs $5 and $6.")
        watched.page.reload()
    assert watched.page.evaluate("window.violations") == []


def test_a_formula_at_the_end_of_a_line_swallows_nothing_that_follows(watched: Visitor) -> None:
    closed = [
        "An integral: $$\\int x_1 dx$$\n\n- one\n- two\n",
        "Half of \\[\n\n- one\n- two\n",
        "$$\nx\n$$\n\n- one\n- two\n",
    ]

    watched.page.evaluate(STREAM, [closed, 1])

    streamed = watched.page.locator(".streamed")
    assert [streamed.nth(n).locator("> .part > ul > li").count() for n in range(3)] == [2] * 3
    assert [streamed.nth(n).locator(".math.display").count() for n in range(3)] == [0, 0, 1]


def test_a_message_is_copied_as_the_model_wrote_it(watched: Visitor) -> None:
    watched.context.grant_permissions(["clipboard-read", "clipboard-write"])
    watched.page.goto("/")
    watched.ask(scripted(f"**So** \\(x\\):\n\n{CODE}"))
    expect(watched.page.locator(".turn.assistant .facts")).to_contain_text("written")
    for place, text in enumerate(watched.stored):
        turn = watched.page.locator(".turn").nth(place)
        turn.hover()
        turn.locator(".foot").get_by_role("button").click()
        expect(turn.locator(".foot").get_by_role("button")).to_have_text("Copied")
        assert watched.page.evaluate("navigator.clipboard.readText()") == text


def test_what_is_selected_stays_selected_when_the_answer_is_whole(watched: Visitor) -> None:
    watched.page.goto("/")
    watched.ask(scripted("Selected words. " * 40, split_characters=True))
    expect(watched.answers).to_contain_text("Selected")
    watched.page.evaluate("getSelection().selectAllChildren(document.querySelector('.turn.assistant p'))")
    expect(watched.stop).to_be_hidden()
    watched.page.wait_for_timeout(1500)  # in which the page is fetched again

    assert watched.page.evaluate("getSelection().toString()").startswith("Selected words.")
    watched.page.evaluate("getSelection().removeAllRanges()")


def test_what_a_library_does_not_know_stays_as_it_was_written(watched: Visitor) -> None:
    watched.page.goto("/")
    odd = "```brainfuck\n+[-->-[>>+>-----<<]<--<---]\n```\n\n\\(\\unknowncommand{x}\\)"
    watched.ask(scripted(odd))
    expect(watched.page.locator(".turn.assistant .facts")).to_contain_text("written")

    expect(watched.answers.locator("code")).to_have_text("+[-->-[>>+>-----<<]<--<---]")
    expect(watched.answers.locator(".math")).to_have_text(r"\unknowncommand{x}")
