"""How bare AsyncLLM is asked: by a line of JSON at the side door of a worker (see `bench.serving.side_door_host`)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

HOST = "bench.serving.side_door_host:host"
PORT = "BENCH_SIDE_DOOR"
LINE_BYTES = 1 << 20


@dataclass(frozen=True)
class Wish:
    """So many requests at once, of so many tokens each; none to be told of the engine only."""

    at_once: int
    max_output_tokens: int


@dataclass(frozen=True)
class Burst:
    """What came of it, and how the engine is set up."""

    seconds: float
    tokens: int
    ttft_ms: Sequence[float]
    engine: Mapping[str, Any]

    @classmethod
    async def asked(cls, port: int, wish: Wish) -> Self:
        """Ask at the side door."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=LINE_BYTES)
        try:
            writer.write(json.dumps(asdict(wish)).encode() + b"\n")
            return cls(**json.loads(await reader.readline()))
        finally:
            writer.close()
