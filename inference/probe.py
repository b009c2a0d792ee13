"""A first question to an engine that has just loaded: whether it answers at all."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from inference.engine import Engine, EngineError, Generation, Sampling
from inference.tokens import Tokenizer, TokensError, Turn

QUESTION = "Say hello."
MOST_TOKENS = 4
# A cold engine on a slow CPU takes seconds for its first step; one that compiles, minutes.
PATIENCE_S = 300.0


class ProbeFailed(Exception):
    """The model gives no answer that could be shown to anybody; the text says what it does."""


async def probe(engine: Engine, tokenizer: Tokenizer) -> None:
    """Ask it something short, by its own chat template. Raises `ProbeFailed`, which is not told for what it says."""
    ids: list[int] = []
    try:
        prompt = tokenizer.encode_chat([Turn("user", QUESTION)])
        generation = Generation("probe", prompt, MOST_TOKENS, Sampling())
        async with asyncio.timeout(PATIENCE_S), aclosing(engine.generate(generation)) as steps:
            async for step in steps:
                ids += step.token_ids
    except (EngineError, TokensError) as error:
        raise ProbeFailed(f"the probe failed: {error}") from error
    except TimeoutError as error:
        raise ProbeFailed(f"the probe had no answer within {PATIENCE_S:.0f} s") from error
    if not ids:
        raise ProbeFailed("the probe was answered with nothing")
    if max(ids) >= tokenizer.vocab_size:
        raise ProbeFailed("the probe was answered with tokens that its tokenizer does not know: files of two models?")
