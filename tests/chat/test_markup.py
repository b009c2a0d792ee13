"""Answers as HTML: what people expect of Markdown, and nothing that a hostile text could do."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from urllib.parse import urlsplit
from uuid import UUID

import pytest
from django.utils.safestring import SafeString

from chat import markup
from chat.models import Chat, Message, Role
from tests.acts import add_message
from tests.hostile_markdown import FENCE, HOSTILE


def code(within: str, language: str = "") -> str:
    """A piece of code, as it is framed."""
    frame = f'<div class="code"><div class="language">{language}</div>'
    return f'{frame}<pre dir="ltr" tabindex="0">{within}</pre></div>\n'


class Looking(HTMLParser):
    """What a browser would find."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_nothing_comes_out_that_could_act_or_fetch(text: str) -> None:
    made = markup.html(text)
    assert len(made) < 20 * len(text) + 20_000  # little makes no flood
    found = Looking()
    found.feed(made)

    assert found.tags <= markup.TAGS
    for tag, name, value in found.attributes:
        assert name in {"href", "title", "target", "rel", "class", "dir", "start", "tabindex"}, (tag, name)
        if name == "href":
            assert urlsplit(value).scheme in markup.SCHEMES, value
            assert (tag, "rel", "noopener noreferrer nofollow") in found.attributes


@pytest.mark.parametrize("name", ["main.py", "README.md", "script.sh", "lib.rs", "asp.net", "a@b.co"])
def test_the_name_of_a_file_is_no_address(name: str) -> None:
    assert "<a" not in markup.html(f"See {name}.")


def test_there_are_enough_of_them() -> None:
    assert len(HOSTILE) >= 60


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One\ntwo.\n\nThree.", '<p dir="auto">One<br>\ntwo.</p>\n<p dir="auto">Three.</p>\n'),
        ("# A\n## B\n###### C", '<h3 dir="auto">A</h3>\n<h4 dir="auto">B</h4>\n<h6 dir="auto">C</h6>\n'),
        ("~~no~~ **yes** _so_", '<p dir="auto"><s>no</s> <strong>yes</strong> <em>so</em></p>\n'),
        ("3. x", '<ol start="3" dir="auto">\n<li>x</li>\n</ol>\n'),
        (
            "- [ ] a\n- [x] b",
            '<ul dir="auto">\n<li>☐ a</li>\n<li>☑ b</li>\n</ul>\n',
        ),
        ("    code", code("<code>code\n</code>")),
        (f"{FENCE}py a\nx < 1\n{FENCE}", code('<code class="language-py">x &lt; 1\n</code>', "py")),
        (r"Now \(x^2 < 1\).", '<p dir="auto">Now <span class="math inline" dir="ltr">x^2 &lt; 1</span>.</p>\n'),
        ("It costs $5 or $10.", '<p dir="auto">It costs $5 or $10.</p>\n'),
        ("<b>bold</b> & co", '<p dir="auto">&lt;b&gt;bold&lt;/b&gt; &amp; co</p>\n'),
    ],
)
def test_what_people_expect(text: str, expected: str) -> None:
    assert markup.html(text) == expected


@pytest.mark.parametrize(
    "text", ["$$\nx\n$$", "\\[\nx\n\\]", "$$x$$", "So \\[x\\] holds.", "- \\[\n  x\n  \\]", "> \\[\n> x\n> \\]"]
)
def test_formulas_on_their_own(text: str) -> None:
    assert '<span class="math display" dir="ltr">x</span>' in markup.html(text)


@pytest.mark.parametrize("text", ["> " * 25 + "deep", "> " * 4000 + "deep", "- " * 500 + "deep"])
def test_however_deep_it_stands_no_text_is_left_out(text: str) -> None:
    assert "deep" in markup.html(text)


def test_lines_are_broken_in_a_cell_and_notes_keep_their_text() -> None:
    made = markup.html("| x |\n| --- |\n| one<br>two |\n\nSee[^1].\n\n[^1]: note\n")

    assert "one<br>\ntwo" in made
    assert "See[^1]." in made
    assert "[^1]: note" in made


def test_links_lead_elsewhere_and_tell_nothing() -> None:
    made = markup.html("See https://example.org/a and [b](https://example.org/b).")

    assert re.findall(r'<a href="https://example.org/\w"', made)
    assert made.count('target="_blank"') == made.count('rel="noopener noreferrer nofollow"') == 2


def test_an_image_is_a_link() -> None:
    made = markup.html("![A cat](https://example.org/cat.png)")

    assert "<img" not in made
    assert ">A cat</a>" in made


def test_a_table_has_its_columns_aligned_and_a_place_to_scroll_in() -> None:
    made = markup.html("| a | b |\n| --: | :-: |\n| 1 | 2 |")

    assert made.startswith('<div class="wide" tabindex="0"><table dir="auto">')
    assert re.search(r'<td[^>]*class="to-right"', made)
    assert re.search(r'<td[^>]*class="to-center"', made)
    assert "style" not in made


@pytest.mark.django_db(transaction=True)
def test_an_answer_is_made_once_and_anew_by_other_rules(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    question, answer = add_message(chat, Role.USER, "**Why?**"), add_message(chat, Role.ASSISTANT, "**So.**")
    made: list[str] = []
    html = markup.html

    def noting(text: str) -> SafeString:
        made.append(text)
        return html(text)

    def of_answers() -> dict[UUID, SafeString]:
        return markup.of_answers(list(Message.objects.order_by("position")))

    monkeypatch.setattr(markup, "html", noting)
    assert question.pk not in of_answers()
    assert of_answers() == of_answers() == {answer.pk: '<p dir="auto"><strong>So.</strong></p>\n'}
    assert made == ["**So.**"]

    monkeypatch.setattr(markup, "VERSION", markup.VERSION + 1)
    of_answers()
    assert made == ["**So.**"] * 2


@pytest.mark.django_db(transaction=True)
def test_what_there_is_no_time_for_stays_text(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    add_message(chat, Role.ASSISTANT, "**So.**")
    monkeypatch.setattr(markup, "PATIENCE_S", -1)

    assert markup.of_answers(list(Message.objects.all())) == {}
