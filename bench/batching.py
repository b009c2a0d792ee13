"""How much faster questions are answered together than one after the other, over HTTP.

    python -m bench.batching --url http://127.0.0.1:8000 --key pal_...

The engine's own report (how many sequences one of its steps has run together at most) comes through `celery inspect`,
from the worker's pool; it needs BROKER_URL as the worker has it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from celery import Celery

from tests.sse_client import Api, Reading

QUESTIONS = 8
OUTPUT_TOKENS = 24
TOPICS = ("rivers", "bread", "the moon", "horses", "glass", "chess", "salt", "bridges")


@dataclass(frozen=True)
class Measured:
    """Seconds for all questions."""

    one_by_one_s: float
    together_s: float

    def __str__(self) -> str:
        ratio = self.together_s / self.one_by_one_s
        return f"one by one {self.one_by_one_s:.1f} s, together {self.together_s:.1f} s, ratio {ratio:.2f}"


async def measure(api: Api, output_tokens: int = OUTPUT_TOKENS) -> Measured:
    """Ask all questions one after the other, then others of the same length at once."""
    await answer(api, "Tell me about wool.", output_tokens)  # warm
    began_at = time.perf_counter()
    for topic in TOPICS:
        await answer(api, f"Write a long story about {topic}.", output_tokens)
    one_by_one_s = time.perf_counter() - began_at
    began_at = time.perf_counter()
    await asyncio.gather(*(answer(api, f"Write a long tale about {topic}.", output_tokens) for topic in TOPICS))
    return Measured(one_by_one_s, time.perf_counter() - began_at)


async def answer(api: Api, question: str, output_tokens: int) -> None:
    """Ask, and read to the end."""
    asked = await api.ask(question, max_output_tokens=output_tokens)
    await api.read(asked["stream"], Reading())


async def engine_report(broker_url: str) -> dict[str, Any]:
    """What the first worker that answers says of its engine's load."""
    return await asyncio.to_thread(_engine_report, broker_url)


def _engine_report(broker_url: str) -> dict[str, Any]:
    with Celery(broker=broker_url) as app:
        replies = app.control.inspect(timeout=5).stats() or {}
    report: dict[str, Any] = next(iter(replies.values()))["pool"]["engine"]
    return report


async def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Eight questions one by one, then together.")
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--key", required=True)
    options = parser.parse_args()
    print(await measure(Api(urlsplit(options.url).port or 80, options.key)))
    print("engine:", await engine_report(os.environ["BROKER_URL"]))


if __name__ == "__main__":
    asyncio.run(main())
