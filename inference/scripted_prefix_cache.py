"""Which blocks of ids the scripted engine need not compute again, by the rules of vLLM's automatic prefix cache."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import takewhile

Chain = list[
    int
]  # the full blocks of one sequence, in their order, each by a hash of its ids and of the block before it


class PrefixCache:
    """Full blocks, held by the sequences that run or idle since the last of those ended.

    As in vLLM, sequences find blocks of each other while both run, the least recently used of the idle go first, and of
    one sequence's its last.
    """

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._held = Counter[int]()
        self._idle: dict[int, None] = {}  # least recently used first

    def cached_tokens(self, ids: Sequence[int]) -> int:
        """How many leading ids are there, in full blocks; never the last id, whose logits are still to be computed."""
        reusable = self._hashes(ids, (), len(ids) - 1)
        found = sum(1 for _ in takewhile(lambda block: block in self._held or block in self._idle, reusable))
        return found * self._block_tokens

    def hold(self, chain: Chain, ids: Sequence[int], computed_tokens: int) -> None:
        """Add to a sequence's chain the blocks that its first `computed_tokens` ids have filled."""
        for block in self._hashes(ids, chain, computed_tokens):
            self._idle.pop(block, None)
            self._held[block] += 1
            chain.append(block)

    def release(self, chain: Chain, computed_tokens: int) -> None:
        """Take a sequence's chain from it; blocks that it did not come to compute, and nobody else has, are no more."""
        computed = computed_tokens // self._block_tokens
        for position, block in reversed(list(enumerate(chain))):
            self._held[block] -= 1
            if not self._held[block]:
                del self._held[block]
                if position < computed:
                    self._idle[block] = None
        chain.clear()

    def evict(self, most_idle: int) -> None:
        """Forget idle blocks until there are no more than `most_idle`."""
        while len(self._idle) > most_idle:
            del self._idle[next(iter(self._idle))]

    def _hashes(self, ids: Sequence[int], chain: Sequence[int], tokens: int) -> Iterator[int]:
        """The blocks that come after those in `chain`, as far as `tokens` ids fill them."""
        before = chain[-1] if chain else 0
        for start in range(len(chain) * self._block_tokens, tokens - self._block_tokens + 1, self._block_tokens):
            before = hash((before, *ids[start : start + self._block_tokens]))
            yield before
