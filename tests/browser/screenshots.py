"""The pictures in docs/screenshots, made anew by hand: `python -m tests.browser.screenshots [folder] [scene ...]`.

Each scene at two widths, by day and by night, in English and in Persian, which is written from right to left. Needs
what tests need: DATABASE_URL, BROKER_URL, STREAMS_URL, MODEL_PATH.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Literal

import psycopg
from playwright.sync_api import Browser, Page, Route, ViewportSize, expect

from tests.browser import chromium
from tests.browser.visitor import SILENCE, Visitor, scripted
from tests.stack.fixtures import SCRIPT, SCRIPTED_DB
from tests.stack.stack import ROOT, Stack, running

WIDTHS: Sequence[ViewportSize] = ({"width": 1440, "height": 900}, {"width": 390, "height": 844})
SCHEMES: Sequence[Literal["light", "dark"]] = ("light", "dark")
SLOW = {**SCRIPT, "SCRIPT_SPLIT_CHARACTERS": "0", "SCRIPT_TOKENS_PER_S": "20"}
PROMOTE = "UPDATE chat_user SET is_staff = true, is_superuser = true WHERE username = %s"
# Of each question what a person would have written, and of the model a name that one would read.
TIDY = r"UPDATE chat_message SET content = regexp_replace(content, ' Please \[\[script.*', '')"
DRESS = "UPDATE scheduler_model SET name = 'SmolLM2 135M'"
CAPACITY = {"code": "queue_full", "detail": "", "status": 503}
CODE = """Use `pathlib`, and let `max` compare the times:

```python
from pathlib import Path


def newest(folder: str, pattern: str = "*") -> Path | None:
    \"\"\"The file in a folder that was changed last.\"\"\"
    files = [path for path in Path(folder).glob(pattern) if path.is_file()]
    return max(files, key=lambda path: path.stat().st_mtime_ns, default=None)  # None where there is none at all


if __name__ == "__main__":
    print(newest("/var/log", "*.log"))
```

The `default` makes an empty folder give `None` instead of an error.
"""


@dataclass(frozen=True, slots=True)
class Words:
    """What is said in one language."""

    locale: str
    name: str
    titles: Sequence[str]  # of chats that are only listed
    questions: Mapping[str, str]  # by scene; a chat is called by its question
    story: str
    code: str
    table: str


ENGLISH = Words(
    "en-GB",
    "alice",
    ("Three days in Lisbon", "Recursion, for a child", "A polite reminder"),
    {
        "code": "How do I find the newest file in a folder, from Python?",
        "table": "Compare three planets",
        "failed": "How does a fox live?",
        "streaming": "Tell me a story of a fox",
        "queued": "What should I read about Lisbon?",
        "capacity": "And why do the outer ones go slower?",
    },
    "A fox lives where the field ends and the wood begins. By day it sleeps; in the evening it looks for mice. ",
    CODE,
    """## Three planets

| planet | radius, km | days a year |
| :--- | ---: | ---: |
| Venus | 6,052 | 225 |
| Earth | 6,371 | 365 |
| Mars | 3,390 | 687 |

The further out, the longer the year: \\\\(T^2\\\\) grows as \\\\(a^3\\\\).

\\\\[ T = 2\\\\pi \\\\sqrt{\\\\frac{a^3}{G M}} \\\\]

1. **Venus** is nearly as large as the Earth.
2. **Mars** is half of it.
""".replace("\\\\", "\\"),
)
PERSIAN = Words(
    "fa-IR",
    "سارا",
    ("سفر سه‌روزه به شیراز", "بازگشت به زبان ساده", "یک یادآوری مؤدبانه"),
    {
        "code": "چطور در پایتون تازه‌ترین فایل یک پوشه را پیدا کنم؟",
        "table": "سه سیاره را مقایسه کن",
        "failed": "روباه چگونه زندگی می‌کند؟",
        "streaming": "داستان یک روباه را بگو",
        "queued": "دربارهٔ شیراز چه بخوانم؟",
        "capacity": "چرا سیاره‌های دورتر کندتر می‌گردند؟",
    },
    "روباه آنجا زندگی می‌کند که دشت تمام می‌شود و جنگل آغاز. روزها می‌خوابد و شب‌ها دنبال موش می‌گردد. ",
    CODE.replace(
        "Use `pathlib`, and let `max` compare the times:", "از `pathlib` استفاده کن و مقایسه را به `max` بسپار:"
    ).replace(
        "The `default` makes an empty folder give `None` instead of an error.",
        "با `default` اگر پوشه خالی باشد، به جای خطا `None` برمی‌گردد.",
    ),
    """## سه سیاره

| سیاره | شعاع (کیلومتر) | روزهای سال |
| :--- | ---: | ---: |
| زهره | ۶۰۵۲ | ۲۲۵ |
| زمین | ۶۳۷۱ | ۳۶۵ |
| مریخ | ۳۳۹۰ | ۶۸۷ |

هرچه دورتر، سال بلندتر: \\\\(T^2\\\\) مانند \\\\(a^3\\\\) رشد می‌کند.

\\\\[ T = 2\\\\pi \\\\sqrt{\\\\frac{a^3}{G M}} \\\\]

1. **زهره** تقریباً به بزرگی زمین است.
2. **مریخ** نیمی از آن است.
""".replace("\\\\", "\\"),
)


@dataclass(frozen=True, slots=True)
class Account:
    """Somebody whose chats are photographed, and the chats' addresses by scene."""

    words: Words
    cookies: object
    chats: Mapping[str, str]


def main() -> None:
    """Draw every scene, or those that are named."""
    folder = Path(sys.argv[1]) if sys.argv[1:] else ROOT / "docs" / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    wanted = sys.argv[2:] or list(SCENES)
    with (
        tempfile.TemporaryDirectory() as scratch,
        running(
            "scripted",
            SCRIPTED_DB,
            Path(scratch),
            SLOW,
        ) as stack,
        chromium.running() as browser,
    ):
        for words in (ENGLISH, PERSIAN):
            account = talked(stack, browser, words)
            for scene, size, scheme in product(wanted, WIDTHS, SCHEMES):
                name = f"{scene}-{size['width']}-{scheme}-{'rtl' if words is PERSIAN else 'ltr'}.jpg"
                with before(stack, browser, account, size, scheme, is_signed_in=scene != "sign-in") as page:
                    SCENES[scene](page, account)
                    page.evaluate("document.activeElement.blur()")
                    page.screenshot(path=folder / name, type="jpeg", quality=80)
                sys.stdout.write(f"{name}\n")


@contextmanager
def before(
    stack: Stack,
    browser: Browser,
    account: Account,
    size: ViewportSize,
    scheme: Literal["light", "dark"],
    *,
    is_signed_in: bool,
) -> Iterator[Page]:
    """A browser in that language, before nothing yet."""
    context = browser.new_context(
        base_url=f"http://127.0.0.1:{stack.port}",
        viewport=size,
        color_scheme=scheme,
        locale=account.words.locale,
        storage_state=account.cookies if is_signed_in else None,  # type: ignore[arg-type]
        reduced_motion="reduce",
    )
    yield context.new_page()
    context.close()


def talked(stack: Stack, browser: Browser, words: Words) -> Account:
    """An account with chats in every state."""
    visitor = Visitor.arrive(browser, f"http://127.0.0.1:{stack.port}", locale="en-GB")
    visitor.sign_up(words.name)
    with psycopg.connect(stack.database_url, autocommit=True) as connection:
        connection.execute(PROMOTE, [words.name])
        connection.execute(DRESS)
    for title in words.titles:
        visitor.open_chat(title)
    broken = scripted(words.story * 2, failure="generation_failed", fail_after_tokens=30)
    asks = {
        "code": scripted(words.code, tokens_per_step=50),
        "table": scripted(words.table, tokens_per_step=50),
        "failed": broken,
        "streaming": scripted(words.story * 40),
        "queued": SILENCE,
    }
    chats = {
        scene: asked(visitor, words.questions[scene], ask, is_awaited=scene not in {"streaming", "queued"})
        for scene, ask in asks.items()
    }
    with psycopg.connect(stack.database_url, autocommit=True) as connection:
        connection.execute(TIDY)
    cookies = visitor.context.storage_state()
    visitor.context.close()
    return Account(words, cookies, chats)


def asked(visitor: Visitor, question: str, ask: str, *, is_awaited: bool) -> str:
    """One question in a chat of its own, which is called by it; returns the chat's address."""
    chat_id = visitor.open_chat(question)
    visitor.page.goto(f"/chats/{chat_id}")
    visitor.ask(f"{question} {ask}")
    expect(visitor.retry if is_awaited else visitor.stop).to_be_visible()
    return f"/chats/{chat_id}"


def empty(page: Page, _account: Account) -> None:
    """Before a new chat."""
    page.goto("/")


def streaming(page: Page, account: Account) -> None:
    """An answer that is being written."""
    page.goto(account.chats["streaming"])
    page.wait_for_function("() => document.querySelector('.turn.live .text')?.textContent.length > 150")


def queued(page: Page, account: Account) -> None:
    """A run that waits, with its place and how long."""
    wait = {"position": 3, "eta_s": 40, "tier": "free"}
    body = f"event: queued\ndata: {json.dumps(wait)}\n\n"
    page.route("**/api/events?*run=*", lambda route: route.fulfill(content_type="text/event-stream", body=body))
    page.goto(account.chats["queued"])
    page.wait_for_function("() => /3|۳/.test(document.querySelector('.turn.live .note')?.textContent)")
    page.evaluate("document.querySelector('#connection').hidden = true")  # of the stream that this scene cut


def of(name: str) -> Callable[[Page, Account], None]:
    """The chat of that name, as it stands, from its first message on."""

    def scene(page: Page, account: Account) -> None:
        page.goto(account.chats[name])
        page.wait_for_load_state("networkidle") if name == "failed" else page.wait_for_timeout(700)

    return scene


def capacity(page: Page, account: Account) -> None:
    """A question that could not be taken now."""

    def refuse(route: Route) -> None:
        headers = {"Retry-After": "12", "Content-Type": "application/problem+json"}
        route.fulfill(status=503, headers=headers, body=json.dumps(CAPACITY))

    page.route("**/messages", refuse)
    page.goto(account.chats["table"])
    page.locator("#content").fill(account.words.questions["capacity"])
    page.locator("#content").press("Enter")
    page.locator("#countdown").wait_for()


def sign_in(page: Page, _account: Account) -> None:
    """Before signing in."""
    page.goto("/sign-in")


def operator(page: Page, _account: Account) -> None:
    """Who waits, and what workers do."""
    page.goto("/admin/load/")


SCENES: Mapping[str, Callable[[Page, Account], None]] = {
    "streaming": streaming,  # first: it is over after a while
    "empty": empty,
    "queued": queued,
    "failed": of("failed"),
    "capacity": capacity,
    "code": of("code"),
    "table": of("table"),
    "sign-in": sign_in,
    "operator": operator,
}


if __name__ == "__main__":
    main()
