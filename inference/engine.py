"""The engine interface: what a worker asks of whatever turns token ids into more token ids."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class EngineError(Exception):
    """Root of engine failures.

    EngineError
    ├── EngineDead         the engine is gone: hand every run back and exit
    ├── GenerationFailed   this run failed, the engine goes on
    └── PromptRejected     the engine will not take this prompt, now or later
    """

    code = "engine_error"


class EngineDead(EngineError):
    """The engine is gone and cannot be revived; the worker must exit."""

    code = "engine_dead"


class GenerationFailed(EngineError):
    """One generation failed; the engine goes on."""

    code = "generation_failed"


class PromptRejected(EngineError):
    """The engine refuses this prompt: empty, out of vocabulary, or longer than its window."""

    code = "prompt_rejected"


class FinishReason(StrEnum):
    """Why the engine stopped."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen; temperature 0 is greedy. A penalty counts against tokens that the answer has."""

    temperature: float = 0.0
    top_p: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Generation:
    """One request to the engine: `prompt_ids` in, at most `max_output_tokens` out."""

    request_id: str
    prompt_ids: Sequence[int]
    max_output_tokens: int
    sampling: Sampling

    @property
    def most_tokens(self) -> int:
        """What its sequence may grow to, prompt and answer together."""
        return len(self.prompt_ids) + self.max_output_tokens


@dataclass(frozen=True, slots=True)
class Step:
    """What the engine produced since the last step: token ids, and on the last one why it stopped.

    The end-of-sequence id that led to `STOP` is never among `token_ids`: it is no text, does not count as output, and
    a run that is continued after a crash must not be prompted with it.

    `input_tokens` is the engine's own count of the prompt, on every step; 0 where it does not tell. `cached_tokens` of
    them it had computed before.
    """

    token_ids: Sequence[int]
    finish_reason: FinishReason | None = None
    cached_tokens: int = 0
    input_tokens: int = 0


@dataclass(frozen=True, slots=True)
class KvCache:
    """What all running sequences keep their keys and values in: `blocks`, each for `block_tokens` of one sequence."""

    blocks: int
    block_tokens: int

    def blocks_for(self, tokens: int) -> int:
        """How many blocks a sequence of so many tokens takes, prompt and answer together."""
        return -(-tokens // self.block_tokens)

    def check_holds(self, window: int) -> None:
        """Raises `EngineDead` when a sequence of a whole window, in tokens, does not fit: it would wait for ever."""
        if self.blocks_for(window) > self.blocks:
            held = self.blocks * self.block_tokens
            raise EngineDead(f"the KV cache holds {held} tokens, fewer than the context window of {window}")


@dataclass(frozen=True, slots=True)
class Load:
    """How busy the engine is now, by what its scheduler last said; `peak_running` is the most sequences one step has
    run together since the start.

    Since the start: `preemptions`, where a sequence lost its blocks to another and was to be computed anew;
    `input_tokens` of the prompts it began to answer, `output_tokens` of the answers; `prefix_queries`, input tokens
    that were looked up in the prefix cache, and `prefix_hits`, those that were there.

    By our own account: `requests` were submitted and have not ended, and `steps` grows with every sign that the engine
    makes progress, those that bring no output included.
    """

    running: int
    waiting: int
    peak_running: int
    kv_cache_usage: float
    requests: int = 0
    steps: int = 0
    preemptions: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    prefix_queries: int = 0
    prefix_hits: int = 0


class Engine(Protocol):
    """A continuous-batching engine. Made and used on one event loop."""

    @property
    def slots(self) -> int:
        """The most sequences the engine runs in one batch."""

    @property
    def context_window(self) -> int:
        """The most tokens of one sequence, prompt and answer together. Known once started."""

    @property
    def kv_cache(self) -> KvCache:
        """The cache, which holds one sequence of a whole window at least. Known once started."""

    async def start(self) -> None:
        """Load the model; returns when the first prompt can be taken. Raises `EngineDead`.

        So it does when the KV cache cannot hold a sequence of a whole window.
        """

    def generate(self, generation: Generation) -> AsyncGenerator[Step, None]:
        """Yield steps until one has a finish reason.

        Closing the iterator, or cancelling the task that waits for its next step, aborts the request and returns once
        the engine has let go of it. Read it under `contextlib.aclosing`: Python closes an abandoned one late.
        Raises `PromptRejected`, `GenerationFailed`, `EngineDead`; `ValueError` when the request id is in use.
        """

    async def abort(self, request_id: str) -> None:
        """End a request: its iterator yields a step with `FinishReason.ABORT`. An unknown or ended id is no error."""

    def check_health(self) -> None:
        """Raise `EngineDead` when the engine is gone; a silent engine it cannot tell from a slow one.

        See `inference.watchdog` for that.
        """

    def load(self) -> Load:
        """Current load, without a round trip to the engine."""

    def kill(self) -> None:
        """End the engine at once, by force, though it answers nothing: every request raises `EngineDead`.

        Never blocks; safe to repeat, and for an engine that is dead.
        """

    async def stop(self) -> None:
        """Free the model and end every child process."""
