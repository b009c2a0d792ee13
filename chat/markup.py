"""Answers as HTML: Markdown by CommonMark with tables, strikethrough, links and TeX, and nothing that could do harm.

What a model writes is hostile until proven otherwise: raw HTML is text, what comes out is cut down to a list of known
elements once more, and images are links, so that no answer can make a reader's browser fetch anything.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any
from uuid import UUID

import nh3
from django.utils.safestring import SafeString, mark_safe
from linkify_it import LinkifyIt
from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml
from markdown_it.rules_block import reference
from mdit_py_plugins.dollarmath import dollarmath_plugin

from chat.models import Message, Role

if TYPE_CHECKING:
    from markdown_it.rules_block import StateBlock
    from markdown_it.rules_core import StateCore
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token

# Counted up with each change to what comes out: what was kept by other rules is made anew.
VERSION = 2
# A page of long answers that were never rendered has some of them as plain text, and the next time all.
PATIENCE_S = 0.5
# Longer ones stay text: 10 KB take 50 ms.
MOST_CHARS = 100_000
# How far to look for the end of a formula, so that many that never end cost no more.
MOST_OF_FORMULA = 4_000
# The page has its own headings above.
HEADINGS_FROM = 2
# Cells that short rows of a table are filled up with: a few bytes would make a megabyte.
import_module("markdown_it.rules_block.table").__dict__["MAX_AUTOCOMPLETED_CELLS"] = 1_000
LEAST_HEADING = 6
# Lists and quotes within each other; a list is two. The parser leaves out what is deeper, and so we show all as text.
DEEPEST = 60

TAGS = {
    *("a", "blockquote", "br", "code", "em", "hr", "li", "ol", "p", "pre", "s", "span", "strong", "ul"),
    *("h3", "h4", "h5", "h6"),
    *("table", "tbody", "td", "th", "thead", "tr", "div"),
}
ATTRIBUTES = {
    "a": {"href", "title", "target"},
    "code": {"class"},
    "div": {"class", "tabindex"},
    "ol": {"start"},
    "pre": {"tabindex"},
    "span": {"class"},
    "td": {"class"},
    "th": {"class"},
    "*": {"dir"},
}
SCHEMES = {"http", "https", "mailto"}
# The direction of each of these is that of its own text, where it stands by itself: within one of them the style sheet
# sees to each line, since what has a direction of its own would not count for the whole.
BLOCKS = {"p", "ul", "ol", "h3", "h4", "h5", "h6", "blockquote", "table"}

BLOCKS_OF_TEX = {r"\[": r"\]", "$$": "$$"}
BRACKETS = {r"\(": ("math_inline", r"\)"), r"\[": ("math_inline_double", r"\]")}

# A task in a list, done or not.
TASK = re.compile(r"^\[([ xX])\](?= )")
BOXES = {" ": "☐", "x": "☑", "X": "☑"}
# The one element of HTML that models write for want of Markdown: within a table's cell there is no other way.
LINE_BREAK = re.compile(r"<br ?/?>", re.IGNORECASE)

Rule = Callable[..., str]


def html(text: str) -> SafeString:
    """The text as HTML that may stand in a page as it is."""
    environment: dict[str, Any] = {}
    tokens = PARSER.parse(text, environment)
    is_too_deep = any(token.level >= DEEPEST - 1 for token in tokens)
    made = _plain(text) if is_too_deep else PARSER.renderer.render(tokens, PARSER.options, environment)
    return mark_safe(  # noqa: S308  # cleaned here
        nh3.clean(
            made,
            tags=TAGS,
            attributes=ATTRIBUTES,
            url_schemes=SCHEMES,
            url_relative="deny",  # what a model knows of this site's addresses is made up
            link_rel="noopener noreferrer nofollow",
            strip_comments=True,
        )
    )


def _plain(text: str) -> str:
    lines = "<br>\n".join(escapeHtml(line) for line in text.splitlines())
    return f'<p dir="auto">{lines}</p>'


def of_answers(messages: Sequence[Message]) -> dict[UUID, SafeString]:
    """Answers as HTML, by message: made once, and kept beside their text until the rules change."""
    answers = [each for each in messages if each.role == Role.ASSISTANT and len(each.content) <= MOST_CHARS]
    until, made = time.monotonic() + PATIENCE_S, []
    for answer in reversed(answers):  # a page opens at its end
        if answer.html_version != VERSION and time.monotonic() < until:
            answer.html, answer.html_version = html(answer.content), VERSION
            made.append(answer)
    if made:
        Message.objects.bulk_update(made, ["html", "html_version"])
    return {
        answer.pk: mark_safe(answer.html)  # noqa: S308  # `html` made it
        for answer in answers
        if answer.html_version == VERSION
    }


def _parser() -> MarkdownIt:
    # A line that the model ended is ended, as while it was being written.
    parser = MarkdownIt("commonmark", {"html": False, "linkify": True, "breaks": True, "maxNesting": DEEPEST})
    parser.enable(["table", "strikethrough", "linkify"])
    # Addresses that say they are some: else main.py is one, in Paraguay.
    parser.linkify = LinkifyIt(options={"fuzzy_link": False, "fuzzy_email": False})
    # As people write prices: no digit beside a dollar that opens or closes, and no space within.
    dollarmath_plugin(
        parser, allow_labels=False, allow_space=False, allow_digits=False, allow_blank_lines=False, double_inline=True
    )
    parser.block.ruler.disable("math_block")  # which looks for its end without bound
    # Before a backslash escapes the bracket.
    parser.inline.ruler.before("escape", "bracketed", _bracketed)
    parser.inline.ruler.before("html_inline", "line_break", _line_break)
    parser.block.ruler.at("reference", _reference, {"alt": []})
    parser.block.ruler.before("fence", "formula_block", _formula_block, {"alt": ["paragraph", "blockquote", "list"]})
    parser.core.ruler.push("presented", _present)
    rules: dict[str, Rule] = {
        "image": _image,
        "fence": _fence,
        "code_block": _fence,
        "table_open": lambda *_: '<div class="wide" tabindex="0"><table dir="auto">',
        "table_close": lambda *_: "</table></div>",
        "math_inline": _math("inline"),
        "math_inline_double": _math("display"),
        "math_block": _math("display"),
    }
    for name, rule in rules.items():
        parser.add_render_rule(name, _unbound(rule))
    return parser


def _unbound(rule: Rule) -> Rule:
    """The renderer calls its rules as methods of its own."""
    return lambda _renderer, *told: rule(*told)


def _bracketed(state: StateInline, silent: bool) -> bool:
    r"""TeX within `\(` and `\)`, or `\[` and `\]`: models write more of it than of dollars."""
    kind, closing = BRACKETS.get(state.src[state.pos : state.pos + 2], ("", ""))
    end = state.src.find(closing, state.pos + 2, state.pos + MOST_OF_FORMULA) if closing else -1
    if end <= state.pos + 2:
        return False
    if not silent:
        state.push(kind, "math", 0).content = state.src[state.pos + 2 : end]
    state.pos = end + 2
    return True


def _line_break(state: StateInline, silent: bool) -> bool:
    found = LINE_BREAK.match(state.src, state.pos)
    if not found:
        return False
    if not silent:
        state.push("hardbreak", "br", 0)
    state.pos = found.end()
    return True


def _reference(state: StateBlock, begin: int, end: int, silent: bool) -> bool:
    """Where links lead, but for notes, which stay as they were written: taken for an address, their text would go."""
    is_note = state.src.startswith("[^", state.bMarks[begin] + state.tShift[begin])
    return not is_note and reference(state, begin, end, silent)


def _formula_block(state: StateBlock, begin: int, end: int, silent: bool) -> bool:
    """The same, and TeX within two dollars, on lines of its own, where lines within may look like a list."""
    start = state.bMarks[begin] + state.tShift[begin]
    closing = BLOCKS_OF_TEX.get(state.src[start : start + 2])
    if closing is None:
        return False
    close = state.src.find(closing, start + 2, min(state.eMarks[end - 1], start + MOST_OF_FORMULA))
    last = next((line for line in range(begin, end) if state.eMarks[line] >= close + 2), end) if close > 0 else end
    if close <= start + 2 or last == end or state.src[close + 2 : state.eMarks[last]].strip():
        return False
    if not silent:
        within = state.getLines(begin, last + 1, state.sCount[begin], False).strip()
        state.push("math_block", "math", 0).content = within[2:-2]
        state.line = last + 1
    return True


def _present(state: StateCore) -> None:
    for token in state.tokens:
        if token.type in {"heading_open", "heading_close"}:
            token.tag = f"h{min(LEAST_HEADING, int(token.tag[1:]) + HEADINGS_FROM)}"
        if token.nesting == 1 and token.level == 0 and token.tag in BLOCKS:
            token.attrSet("dir", "auto")
        if aligned := token.attrs.pop("style", None):  # which the page's policy would not heed
            token.attrSet("class", str(aligned).replace("text-align:", "to-"))
        for child in token.children or ():
            if child.type == "link_open":
                child.attrSet("target", "_blank")
    for item, _, inline in zip(state.tokens, state.tokens[1:], state.tokens[2:], strict=False):
        if item.type == "list_item_open" and inline.children:
            first = inline.children[0]
            if first.type == "text":
                first.content = TASK.sub(lambda box: BOXES[box[1]], first.content)


def _image(tokens: Sequence[Token], index: int, *_: Any) -> str:
    """A link to it, if it is one that may be followed."""
    token = tokens[index]
    address, says = str(token.attrs.get("src", "")), escapeHtml(token.content or str(token.attrs.get("src", "")))
    return f'<a href="{escapeHtml(address)}" target="_blank">{says}</a>'


def _fence(tokens: Sequence[Token], index: int, *_: Any) -> str:
    token = tokens[index]
    language = escapeHtml((token.info.split() or [""])[0])
    named = f' class="language-{language}"' if language else ""
    code = f'<pre dir="ltr" tabindex="0"><code{named}>{escapeHtml(token.content)}</code></pre>'
    return f'<div class="code"><div class="language">{language}</div>{code}</div>\n'


def _math(kind: str) -> Rule:
    """TeX as it was written, which scripts set as formulas."""

    def rule(tokens: Sequence[Token], index: int, *_: Any) -> str:
        return f'<span class="math {kind}" dir="ltr">{escapeHtml(tokens[index].content.strip())}</span>'

    return rule


PARSER = _parser()
