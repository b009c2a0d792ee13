"""Arithmetic on what an engine has: sequences, people, and what a change would bring."""

from __future__ import annotations

import pytest

from inference.capacity import Advice, Capacity, ModelShape, Profile, Speed, advised, batches
from inference.engine import KvCache
from inference.speeding import steady_rate

# Of Llama 3.1 8B: its own figures, 16 GB of weights and 128 KiB a token as bfloat16.
LLAMA = ModelShape(layers=32, kv_heads=8, head_size=128, kv_bytes=2, parameters=8_030_261_248, weight_bytes=2)
CAPACITY = Capacity(LLAMA, KvCache(blocks=4000, block_tokens=16), window=8192)
PROFILE = Profile(sequence_tokens=1000, answer_tokens=200, think_s=30, least_each=10)
SPEEDS = [Speed(1, 80), Speed(16, 640), Speed(64, 960), Speed(128, 1100)]


def test_a_token_takes_a_key_and_a_value_of_each_layer_and_head() -> None:
    assert LLAMA.bytes_per_token == 128 * 1024
    assert LLAMA.weights == 2 * 8_030_261_248


def test_sequences_take_whole_blocks_and_no_more_than_the_window() -> None:
    assert [CAPACITY.sequences(tokens) for tokens in (16, 17, 1000, 8192, 100_000)] == [4000, 2000, 63, 7, 7]


def test_smaller_elements_make_room_in_the_same_memory() -> None:
    assert CAPACITY.with_kv_bytes(1).cache.blocks == 8000
    assert CAPACITY.with_kv_bytes(1).cache_bytes == CAPACITY.cache_bytes
    spared = CAPACITY.with_weight_bytes(1).cache_bytes - CAPACITY.cache_bytes
    assert spared == pytest.approx(LLAMA.weights / 2, abs=16 * LLAMA.bytes_per_token)
    assert CAPACITY.with_window(512).sequences(8192) == 125
    assert CAPACITY.with_memory(-1).sequences(1) == 0


@pytest.mark.parametrize(
    ("capacity", "profile", "advice"),
    [
        # 16 answers of 200 tokens at 40 a second take 5 s; whoever has one thinks for 30 s: 16 × 35 / 5.
        (CAPACITY, PROFILE, Advice(16, 112, "memory")),
        (CAPACITY.with_kv_bytes(1), PROFILE, Advice(64, 208, "speed")),
        (CAPACITY, Profile(1000, 200, 30, least_each=90), Advice(0, 0, "speed")),
        (CAPACITY.with_memory(0), PROFILE, Advice(0, 0, "memory")),
    ],
)
def test_people_are_those_who_are_answered_and_those_who_think(
    capacity: Capacity, profile: Profile, advice: Advice
) -> None:
    assert advised(capacity, SPEEDS, profile) == advice


def test_batches_are_powers_of_two_and_all_slots() -> None:
    assert [list(batches(slots)) for slots in (1, 16, 24)] == [[1], [1, 2, 4, 8, 16], [1, 2, 4, 8, 16, 24]]


def test_a_rate_counts_while_all_decode() -> None:
    early = [(0.0, 1), (1.0, 1), (2.0, 1), (3.0, 1)]
    late = [(1.0, 1), (2.0, 1), (3.0, 1), (9.0, 1)]
    assert steady_rate([early, late]) == 2.0
    assert steady_rate([[(0.0, 1), (1.0, 1)], [(5.0, 1), (6.0, 1)]]) == 0.5
    assert steady_rate([[(0.0, 1)]]) == 0.0
