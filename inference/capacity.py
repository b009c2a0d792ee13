"""How many sequences and people an engine carries: arithmetic on what it has, and on how fast it was seen to be.

A token of a sequence keeps a key and a value in each layer, for each of its KV heads:
`2 × layers × KV heads × head size × bytes of an element`; see "Efficient Memory Management for Large Language Model
Serving with PagedAttention", https://arxiv.org/abs/2309.06180, section 3. Blocks are had whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Self

from inference.engine import KvCache

GIB = 2**30


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What of a model decides how much memory it takes: sizes of elements in bytes, parameters in all."""

    layers: int
    kv_heads: int
    head_size: int
    kv_bytes: float
    parameters: int
    weight_bytes: float

    @property
    def bytes_per_token(self) -> float:
        """Of keys and values."""
        return 2 * self.layers * self.kv_heads * self.head_size * self.kv_bytes

    @property
    def weights(self) -> float:
        """Bytes of all parameters."""
        return self.parameters * self.weight_bytes


@dataclass(frozen=True, slots=True)
class Capacity:
    """A model on an engine whose cache has so many blocks; `window` is the longest sequence, in tokens."""

    shape: ModelShape
    cache: KvCache
    window: int

    @property
    def cache_bytes(self) -> float:
        """Of all blocks."""
        return self.cache.blocks * self.cache.block_tokens * self.shape.bytes_per_token

    def sequences(self, tokens: int) -> int:
        """How many of that length fit at once, prompt and answer together."""
        return self.cache.blocks // self.cache.blocks_for(min(tokens, self.window))

    def with_memory(self, cache_bytes: float) -> Self:
        """The same with a cache of another size."""
        blocks = int(cache_bytes // (self.cache.block_tokens * self.shape.bytes_per_token))
        return replace(self, cache=replace(self.cache, blocks=max(0, blocks)))

    def with_kv_bytes(self, kv_bytes: float) -> Self:
        """In the same memory, with keys and values in elements of another size."""
        return replace(self, shape=replace(self.shape, kv_bytes=kv_bytes)).with_memory(self.cache_bytes)

    def with_weight_bytes(self, weight_bytes: float) -> Self:
        """With weights in elements of another size, and what that saves given to the cache."""
        shape = replace(self.shape, weight_bytes=weight_bytes)
        return replace(self, shape=shape).with_memory(self.cache_bytes + self.shape.weights - shape.weights)

    def with_window(self, window: int) -> Self:
        """With another longest sequence."""
        return replace(self, window=window)


@dataclass(frozen=True, slots=True)
class Speed:
    """So many sequences decode together at so many tokens a second in all."""

    batch: int
    tokens_per_s: float

    @property
    def each(self) -> float:
        """Tokens a second of one of them."""
        return self.tokens_per_s / self.batch


@dataclass(frozen=True, slots=True)
class Profile:
    """How people chat: the length of a sequence and of its answer in tokens, and how long they read and think.

    `least_each` is the slowest answer that they accept, in tokens a second.
    """

    sequence_tokens: int
    answer_tokens: int
    think_s: float
    least_each: float


@dataclass(frozen=True, slots=True)
class Advice:
    """How many answers at a time are still fast enough, and how many people that serves; what the limit is."""

    batch: int
    users: int
    limit: str


def advised(capacity: Capacity, speeds: Iterable[Speed], profile: Profile) -> Advice:
    """By Little's law: of who is served, a share is being answered, and all others think."""
    fits = capacity.sequences(profile.sequence_tokens)
    fast = [speed for speed in speeds if speed.each >= profile.least_each]
    held = [speed for speed in fast if speed.batch <= fits]
    if not held:
        return Advice(0, 0, "speed" if not fast else "memory")
    best = max(held, key=lambda speed: speed.batch)
    answer_s = profile.answer_tokens / best.each
    limit = "memory" if len(held) < len(fast) else "speed"
    return Advice(best.batch, int(best.batch * (answer_s + profile.think_s) / answer_s), limit)


def batches(slots: int) -> Sequence[int]:
    """The sizes that are measured: powers of two, and all slots."""
    sizes = {1 << power for power in range(slots.bit_length())}
    return sorted({*sizes, slots})
