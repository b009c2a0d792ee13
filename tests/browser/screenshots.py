"""The pictures in docs/screenshots, made anew by hand: `python -m tests.browser.screenshots [folder]`.

Needs what tests need: DATABASE_URL, BROKER_URL, STREAMS_URL, MODEL_PATH.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from playwright.sync_api import Browser, ViewportSize, expect

from tests.browser import chromium
from tests.browser.visitor import PHONE, Visitor, scripted
from tests.stack.fixtures import SCRIPT, SCRIPTED_DB
from tests.stack.stack import ROOT, Stack, running

WIDE: ViewportSize = {"width": 1440, "height": 900}
LONG_TITLE = "A very long question about the history of tea, its trade routes, taxes and the people who carried it " * 2
TALKS = (
    ("چرا آسمان آبی است؟", "آسمان آبی است چون هوا نور آبی را بیشتر از نور سرخ می‌پراکند (Rayleigh)."),
    (LONG_TITLE, "It begins in Yunnan."),
    ("Plan three days in Lisbon", "Day one: Alfama on foot."),
    ("Explain recursion to a child", "Imagine two mirrors that face each other."),
    ("Draft a polite reminder", "Dear Ms Okafor, ..."),
)
QUESTION = "How do I find the newest file in a folder, from Python?"
REPLY = """Use pathlib, and let max compare the times:

    from pathlib import Path

    def newest(folder):
        files = [path for path in Path(folder).iterdir() if path.is_file()]
        return max(files, key=lambda path: path.stat().st_mtime, default=None)

The default makes an empty folder give None instead of an error. If files may vanish while you look, catch \
FileNotFoundError around the stat call."""
FOLLOW_UP = "And the newest ten?"
SECOND_REPLY = (
    "Sort them instead, newest first, and keep ten: sorted(files, key=..., reverse=True)[:10]. "
    "For very large folders heapq.nlargest(10, files, key=...) does the same without sorting everything. "
) * 4


def main() -> None:
    """Draw every scene."""
    folder = Path(sys.argv[1]) if sys.argv[1:] else ROOT / "docs" / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as scratch,
        running("scripted", SCRIPTED_DB, Path(scratch), SCRIPT) as stack,
        chromium.running() as browser,
    ):
        draw(stack, browser, folder)


def draw(stack: Stack, browser: Browser, folder: Path) -> None:
    """A talk on a wide screen, and its answer being written on a phone."""
    address = f"http://127.0.0.1:{stack.port}"
    alice = Visitor.arrive(browser, address, WIDE)
    alice.sign_up("alice")
    dress(stack)
    alice.page.goto("/")
    for question, answer in TALKS:
        converse(alice, stack, question, answer)
        alice.page.goto("/")
    converse(alice, stack, QUESTION, REPLY)
    alice.page.reload()
    alice.page.screenshot(path=folder / "chat-1440.png")
    with phone(alice, browser, address) as held:
        held.page.goto(alice.page.url)
        held.ask(f"{FOLLOW_UP} {scripted(SECOND_REPLY)}")
        expect(held.stop).to_be_visible()
        tidy(stack)
        held.page.reload()
        expect(held.answers.last).to_contain_text("heapq")
        held.page.screenshot(path=folder / "chat-390.png")


@contextmanager
def phone(alice: Visitor, browser: Browser, address: str) -> Iterator[Visitor]:
    """Alice's other browser."""
    options = {"device_scale_factor": 2, "has_touch": True, "is_mobile": True}
    held = Visitor.arrive(browser, address, PHONE, storage_state=alice.context.storage_state(), **options)
    yield held
    held.context.close()


def converse(visitor: Visitor, stack: Stack, question: str, answer: str) -> None:
    """One question and its answer."""
    visitor.ask(f"{question} {scripted(answer, tokens_per_step=20)}")
    expect(visitor.retry).to_be_visible()
    tidy(stack)


def dress(stack: Stack) -> None:
    """Give the model a name that a person would read."""
    with psycopg.connect(stack.database_url, autocommit=True) as connection:
        connection.execute("UPDATE scheduler_model SET name = 'SmolLM2 135M'")


def tidy(stack: Stack) -> None:
    """Leave of each question what a person would have written."""
    with psycopg.connect(stack.database_url, autocommit=True) as connection:
        connection.execute(r"UPDATE chat_message SET content = regexp_replace(content, ' Please \[\[script.*', '')")


if __name__ == "__main__":
    main()
