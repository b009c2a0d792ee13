"""Time to first token over HTTP, and how much of it was the engine's.

    python -m bench.ttft --url http://127.0.0.1:8000 --key pal_... [-n 20]

The client's time runs from before the POST is sent until the first delta of the run's stream has arrived, connection
set-up included. The engine's own share is what the run's row says: from the worker's claim (`started_at`) to the first
token that the engine yielded (`first_token_at`). The rest is ours: the POST, the queue, the claim, Redis, SSE. Prompts
come one at a time, each in a new chat, so that a slot is always free.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from tests.sse_client import Api, EventParser

# Short, and all different from the first word on: nothing of a prompt but the template's opening is in a cache.
OUTPUT_TOKENS = 8  # the rest of an answer is not measured
QUESTION = "{number} is my favourite number. Name one thing that comes in such a count, in a short sentence."


async def measured(api: Api, number: int) -> tuple[float, float, int]:
    """One prompt: the client's and the engine's milliseconds to the first token, and the prompt's tokens."""
    chat = (await api.post("/api/chats", {}))["id"]
    began_at = time.perf_counter()
    asked = await api.post(
        f"/api/chats/{chat}/messages", {"content": QUESTION.format(number=number), "max_output_tokens": OUTPUT_TOKENS}
    )
    client_ms = (await first_delta_at(api, asked["stream"]) - began_at) * 1000
    run = await ended(api, asked["run_id"])
    engine = datetime.fromisoformat(run["first_token_at"]) - datetime.fromisoformat(run["started_at"])
    return client_ms, engine.total_seconds() * 1000, run["input_tokens"]


async def first_delta_at(api: Api, path: str) -> float:
    """When the first delta had arrived, by `perf_counter`."""
    async with api.stream(path) as answer:
        parser = EventParser()
        async for chunk in answer.chunks():
            if any(event.name == "delta" for event in parser.feed(chunk)):
                return time.perf_counter()
    raise RuntimeError(f"{path} ended without a delta")


async def ended(api: Api, run_id: str) -> dict[str, Any]:
    """The run once it is over, so that the next prompt finds the engine idle."""
    while True:
        run: dict[str, Any] = await api.get(f"/api/runs/{run_id}")
        if run["status"] not in ("queued", "streaming"):
            return run
        await asyncio.sleep(0.05)


def line(name: str, values_ms: list[float]) -> str:
    """Median and 95th percentile."""
    p95 = statistics.quantiles(values_ms, n=20, method="inclusive")[-1]
    return f"{name:<28} median {statistics.median(values_ms):7.1f} ms   p95 {p95:7.1f} ms"


async def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Time from POST to the first delta at the client.")
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--key", required=True)
    parser.add_argument("-n", type=int, default=20, help="prompts measured, after 2 to warm up")
    options = parser.parse_args()
    api = Api(urlsplit(options.url).port or 80, options.key)
    rows = [await measured(api, number) for number in range(options.n + 2)][2:]
    client_ms, engine_ms, tokens = (list(column) for column in zip(*rows, strict=True))
    print(f"{options.n} prompts of {min(tokens)} to {max(tokens)} tokens, one at a time")
    print(line("POST to first delta", client_ms))
    print(line("engine: claim to first token", engine_ms))
    print(line("the rest", [whole - own for whole, own, _ in rows]))


if __name__ == "__main__":
    asyncio.run(main())
