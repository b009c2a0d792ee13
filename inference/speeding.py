"""How fast an engine decodes: measured with as many sequences as asked for, none of which waits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing

from inference.capacity import Speed
from inference.engine import Engine, Generation, Sampling
from inference.tokens import Tokenizer, Turn

# Long enough to be rid of the prompts' share, short enough for a CPU.
TOKENS = 48
QUESTION = "{number}. Write a long story about {number} foxes, as long as you can."
# A model that ends early says little about the rest: each wanders off on its own.
WANDERING = 1.0


async def measured(engine: Engine, tokenizer: Tokenizer, batches: Sequence[int]) -> AsyncIterator[Speed]:
    """For each number of sequences, all at once."""
    for batch in batches:
        yield Speed(batch, await _rate(engine, tokenizer, batch))


async def _rate(engine: Engine, tokenizer: Tokenizer, batch: int) -> float:
    told: list[list[tuple[float, int]]] = [[] for _ in range(batch)]

    async def one(number: int) -> None:
        ids = tokenizer.encode_chat([Turn("user", QUESTION.format(number=number))])
        wanted = Generation(f"speed:{batch}:{number}", ids, TOKENS, Sampling(temperature=WANDERING, seed=number))
        async with aclosing(engine.generate(wanted)) as steps:
            async for step in steps:
                told[number].append((time.monotonic(), len(step.token_ids)))

    await asyncio.gather(*(one(number) for number in range(batch)))
    return steady_rate(told)


def steady_rate(told: Sequence[Sequence[tuple[float, int]]]) -> float:
    """Tokens a second while all of them decode: `told` has each sequence's steps, as a time and a count of tokens."""
    begins, ends = max(steps[0][0] for steps in told), min(steps[-1][0] for steps in told)
    if ends <= begins:  # one was over before another began
        begins, ends = min(steps[0][0] for steps in told), max(steps[-1][0] for steps in told)
    count = sum(tokens for steps in told for at, tokens in steps if begins < at <= ends)
    return count / (ends - begins) if ends > begins else 0.0
