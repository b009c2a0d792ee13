"""Which ids the scripted engine need not compute again."""

from __future__ import annotations

import pytest

from inference.scripted_prefix_cache import Chain, PrefixCache

BLOCK = 4


def ids(tokens: int, first: int = 0) -> list[int]:
    return list(range(first, first + tokens))


@pytest.fixture
def cache() -> PrefixCache:
    return PrefixCache(BLOCK)


def ran(cache: PrefixCache, sequence: list[int], computed_tokens: int | None = None) -> None:
    """A sequence came and went."""
    chain: Chain = []
    cache.hold(chain, sequence, len(sequence))
    cache.release(chain, len(sequence) if computed_tokens is None else computed_tokens)


@pytest.mark.parametrize(("tokens", "cached"), [(1, 0), (4, 0), (5, 4), (8, 4), (9, 8), (11, 8)])
def test_full_blocks_are_found_but_never_the_last_id(cache: PrefixCache, tokens: int, cached: int) -> None:
    ran(cache, ids(11))
    assert cache.cached_tokens(ids(tokens)) == cached


def test_an_empty_cache_has_nothing(cache: PrefixCache) -> None:
    assert cache.cached_tokens(ids(40)) == 0


def test_a_block_is_another_after_other_ids(cache: PrefixCache) -> None:
    ran(cache, ids(8))
    ran(cache, ids(8, first=50))
    assert cache.cached_tokens([*ids(4), *ids(4, first=54), 1]) == 4


def test_what_a_running_sequence_fills_is_found_as_it_grows(cache: PrefixCache) -> None:
    chain: Chain = []
    for computed, cached in ((3, 0), (4, 4), (7, 4), (8, 8)):
        cache.hold(chain, ids(12), computed)
        assert cache.cached_tokens(ids(12)) == cached
    assert len(chain) == 2


def test_the_least_recently_used_go_first_and_of_a_sequence_its_last(cache: PrefixCache) -> None:
    old, young = ids(8), ids(8, first=50)
    ran(cache, old)
    ran(cache, young)

    found = []
    for most_idle in (4, 3, 2, 1, 0):
        cache.evict(most_idle)
        found.append((cache.cached_tokens([*old, 1]), cache.cached_tokens([*young, 1])))

    assert found == [(8, 8), (4, 8), (0, 8), (0, 4), (0, 0)]


def test_what_is_used_again_is_young_again(cache: PrefixCache) -> None:
    first, second = ids(4), ids(4, first=50)
    ran(cache, first)
    ran(cache, second)
    ran(cache, first)
    cache.evict(1)
    assert (cache.cached_tokens([*first, 1]), cache.cached_tokens([*second, 1])) == (4, 0)


def test_blocks_of_running_sequences_stay_until_the_last_of_them_ends(cache: PrefixCache) -> None:
    chains: list[Chain] = [[], []]
    for chain in chains:
        cache.hold(chain, ids(4), 4)
    cache.release(chains[0], 4)
    cache.evict(0)
    assert cache.cached_tokens(ids(5)) == 4

    cache.release(chains[1], 4)
    cache.evict(0)
    assert cache.cached_tokens(ids(5)) == 0


def test_blocks_that_nobody_came_to_compute_are_no_more(cache: PrefixCache) -> None:
    ran(cache, ids(12), computed_tokens=7)
    assert cache.cached_tokens(ids(13)) == 4


def test_blocks_that_another_has_too_stay_though_this_one_did_not_compute_them(cache: PrefixCache) -> None:
    other: Chain = []
    cache.hold(other, ids(8), 8)
    ran(cache, ids(8), computed_tokens=0)
    assert cache.cached_tokens(ids(9)) == 8


def test_a_sequence_that_was_let_go_twice_gives_its_blocks_up_once(cache: PrefixCache) -> None:
    one: Chain = []
    other: Chain = []
    cache.hold(one, ids(4), 4)
    cache.hold(other, ids(4), 4)
    cache.release(one, 4)
    cache.release(one, 4)
    cache.evict(0)
    assert cache.cached_tokens(ids(5)) == 4
