"""What a long answer costs the page that shows it, and how long a long chat takes to open.

    MODEL_PATH=.palaver/models/SmolLM2-135M-Instruct python -m bench.page [--times 5] [--tokens 10000]

A product of its own on the scripted engine (no model is loaded): an answer in Markdown with lists, tables, code and
formulas, at 200 tokens a second, in Chromium. Time is what the page's main thread was busy, by Chromium's own count,
over the first and over the last thousand tokens; an empty page beside it says what Chromium does for nothing. Needs
what tests need: DATABASE_URL, BROKER_URL, STREAMS_URL, MODEL_PATH.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from html import unescape
from itertools import count
from pathlib import Path

import psycopg
from markdown_it import MarkdownIt
from playwright.sync_api import Browser, CDPSession, expect

from inference.tokens import Tokenizer
from tests.browser import chromium
from tests.browser.visitor import Visitor
from tests.stack.fixtures import SCRIPTED_DB
from tests.stack.stack import Stack, running

TOKENS_PER_S = 200
SPAN = 1000  # tokens at either end
WINDOW = 32_768
ROOM = f"""
    UPDATE scheduler_model SET max_output_tokens = {WINDOW // 2};
    UPDATE scheduler_tier SET max_output_tokens = {WINDOW // 2}, budget_tokens = 100000000, chat_turns = 1000;
"""
SECTION = """## Part {number}

Foxes are **small to medium-sized** animals that live on _nearly every_ continent, see [a list](https://example.org/).
They weigh between `3` and `14` kg, and \\(m = {number}\\) is the mean.

- One thing, and another
- A second thing
  1. within it
  2. and on

| kind | kg | cm |
| --- | ---: | :-: |
| red | 8.7 | 90 |
| arctic | 3.5 | 55 |

```python
def weight(fox: Fox) -> float:
    return sum(part.weight for part in fox.parts)  # {number}
```

"""
LONG_TASKS = """() => {
  window.longTasks = [];
  new PerformanceObserver((list) => longTasks.push(...list.getEntries().map(({ duration }) => duration)))
    .observe({ type: "longtask", buffered: true });
}"""
LENGTH = "document.querySelector('.turn.assistant:last-child .text')?.textContent.length ?? 0"
# What Lighthouse looks at, as far as the browser itself tells it.
AUDIT = """() => new Promise((resolve) => {
  const seen = { lcp: 0, cls: 0, blocking: 0 };
  const look = (type, heed) =>
    new PerformanceObserver((list) => list.getEntries().forEach(heed)).observe({ type, buffered: true });
  look("largest-contentful-paint", ({ startTime }) => (seen.lcp = startTime));
  look("layout-shift", ({ value, hadRecentInput }) => (seen.cls += hadRecentInput ? 0 : value));
  look("longtask", ({ duration }) => (seen.blocking += duration - 50));
  const files = performance.getEntriesByType("resource");
  setTimeout(() => resolve({
    ...seen,
    fcp: performance.getEntriesByName("first-contentful-paint")[0].startTime,
    requests: files.length + 1,
    kilobytes: files.reduce((sum, { transferSize }) => sum + transferSize, 0) / 1024,
    nodes: document.querySelectorAll("*").length,
  }), 1500);
})"""
MESSAGES = """
    INSERT INTO chat_message (id, chat_id, position, role, content, token_count)
    SELECT gen_random_uuid(), %s, n, CASE n %% 2 WHEN 0 THEN 'user' ELSE 'assistant' END,
           CASE n %% 2 WHEN 0 THEN 'And then?' ELSE %s END, 200
      FROM generate_series(0, 399) AS n
"""


@dataclass(frozen=True, slots=True)
class Written:
    """What one answer cost the page."""

    first_ms: float  # of the main thread, a token, over the first thousand
    last_ms: float
    long_tasks: int
    longest_ms: float
    idle_long_tasks: int  # of an empty page, as long
    grown_mb: float  # of the script heap, from the first thousand to the end


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.page", description="What a long answer costs its page.")
    parser.add_argument("--times", type=int, default=5, help="that the answer is written")
    parser.add_argument("--tokens", type=int, default=10_000, help="that it has")
    wanted = parser.parse_args()
    text = markdown(wanted.tokens)
    script = {
        "SCRIPT_TEXT": text,
        "SCRIPT_TOKENS_PER_S": str(TOKENS_PER_S),
        "SCRIPT_CONTEXT_WINDOW": str(WINDOW),
        "MODEL_WINDOW": str(WINDOW),
    }
    with (
        tempfile.TemporaryDirectory() as folder,
        running("scripted", SCRIPTED_DB, Path(folder), script) as stack,
        chromium.running() as browser,
    ):
        with psycopg.connect(stack.database_url, autocommit=True) as connection:
            connection.execute(ROOM.encode())
        found = [report(written(stack, browser, wanted.tokens)) for _ in range(wanted.times)]
        ratio = statistics.median(each.last_ms / each.first_ms for each in found)
        sys.stdout.write(f"last thousand to first, median of {len(found)}: {ratio:.2f}\n")
        open_long_chat(stack, browser)


def markdown(tokens: int) -> str:
    """An answer of so many tokens, or a few more."""
    tokenizer = Tokenizer.load(os.environ["MODEL_PATH"])
    text = ""
    for number in count(1):
        text += SECTION.format(number=number)
        if number % 20 == 0 and tokenizer.count(text) >= tokens:
            return text
    raise AssertionError


def shown(text: str) -> str:
    """What a page shows of it: of a table no bars, of a link no address."""
    return unescape(re.sub("<[^>]*>", "", MarkdownIt("commonmark").enable("table").render(text)))


def written(stack: Stack, browser: Browser, tokens: int) -> Written:
    """Ask, and watch the answer being written."""
    with arrived(stack, browser) as alice, arrived(stack, browser) as idle:
        metered = {visitor.name: metering(visitor) for visitor in (alice, idle)}
        alice.ask("Tell me all about foxes.")
        chars_a_token = len(shown(markdown(tokens))) / tokens
        seen: dict[int, Mapping[str, float]] = {}
        for mark in (20, SPAN, tokens - SPAN, tokens - 20):
            while alice.page.evaluate(LENGTH) < mark * chars_a_token:
                time.sleep(0.1)
            seen[mark] = metrics(metered[alice.name])
        expect(alice.stop).to_be_hidden(timeout=60_000)
        begin, first, last, end = seen.values()
        tasks: list[float] = alice.page.evaluate("longTasks")
        idle_tasks: list[float] = idle.page.evaluate("longTasks")
        return Written(
            first_ms=1000 * (first["TaskDuration"] - begin["TaskDuration"]) / SPAN,
            last_ms=1000 * (end["TaskDuration"] - last["TaskDuration"]) / SPAN,
            long_tasks=len(tasks),
            longest_ms=max(tasks, default=0.0),
            idle_long_tasks=len(idle_tasks),
            grown_mb=(end["JSHeapUsedSize"] - first["JSHeapUsedSize"]) / 1e6,
        )


@contextmanager
def visiting(stack: Stack, browser: Browser) -> Iterator[Visitor]:
    """Somebody with an account, before any page."""
    visitor = Visitor.arrive(browser, f"http://127.0.0.1:{stack.port}")
    visitor.sign_up()
    yield visitor
    visitor.context.close()


@contextmanager
def arrived(stack: Stack, browser: Browser) -> Iterator[Visitor]:
    """Somebody before a new chat."""
    with visiting(stack, browser) as visitor:
        visitor.page.goto("/")
        expect(visitor.send).to_be_enabled()
        yield visitor


def metering(visitor: Visitor) -> CDPSession:
    """Begin to count what the page does."""
    visitor.page.evaluate(LONG_TASKS)
    session = visitor.context.new_cdp_session(visitor.page)
    session.send("Performance.enable")
    return session


def metrics(session: CDPSession) -> Mapping[str, float]:
    """Chromium's counts, after a collection of garbage."""
    session.send("HeapProfiler.collectGarbage")
    return {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}


def report(found: Written) -> Written:
    """Say it."""
    sys.stdout.write(
        f"a token: first thousand {found.first_ms:.2f} ms, last {found.last_ms:.2f} ms of the main thread; "
        f"tasks over 50 ms: {found.long_tasks} (longest {found.longest_ms:.0f} ms), "
        f"an empty page's {found.idle_long_tasks}; script memory grew by {found.grown_mb:.1f} MB\n"
    )
    return found


def open_long_chat(stack: Stack, browser: Browser) -> None:
    """A new chat and one of four hundred messages, whose answers are rendered the first time and read the next."""
    with visiting(stack, browser) as alice:  # with nothing in the browser's cache yet
        chat_id = alice.open_chat("Long")
        with psycopg.connect(stack.database_url, autocommit=True) as connection:
            connection.execute(MESSAGES, [chat_id, SECTION.format(number=1)])
        for address in ("/", *[f"/chats/{chat_id}"] * 3):
            alice.page.goto(address)
            found: Mapping[str, float] = alice.page.evaluate(AUDIT)
            sys.stdout.write(
                f"{'400 messages' if chat_id in address else 'new chat'}: first paint {found['fcp']:.0f} ms, "
                f"largest {found['lcp']:.0f} ms, layout shift {found['cls']:.3f}, blocked {found['blocking']:.0f} ms, "
                f"{found['requests']:.0f} requests, {found['kilobytes']:.0f} KB, {found['nodes']:.0f} elements\n"
            )


if __name__ == "__main__":
    main()
