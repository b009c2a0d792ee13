"""`python -m inference.capacity_report --model SLUG`: what `manage.py capacity` tells, in a process of its own.

It loads the model as a worker does, by the same settings; nothing else may need its memory meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
import warnings
from collections.abc import Iterator, Sequence

from inference import parent_death

# As in a worker: an engine process whose parent died meanwhile must not live on.
parent_death.arm_if_spawned(__name__)

from inference.capacity import GIB, Advice, Capacity, Profile, Speed, advised, batches  # noqa: E402
from inference.capacity_options import add_profile  # noqa: E402
from inference.engine import EngineDead  # noqa: E402
from inference.host import NotServed, ServedModel, load_host  # noqa: E402
from inference.sources import Source, SourceError, fetch  # noqa: E402
from inference.speeding import measured  # noqa: E402
from inference.tokens import Tokenizer, TokensError  # noqa: E402
from inference.vllm_engine import VllmEngine  # noqa: E402
from inference.worker import BadSetting, WorkerConfig, vllm_config  # noqa: E402

LENGTHS = (256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
MIB = 2**20
# What a GPU has besides weights and cache, for a step's intermediate results and the driver: about so much, by what
# vLLM's own profiling usually finds for models of a few billion parameters.
BESIDE_GIB = 2.0
UTILIZATION = 0.92  # vLLM's default


def main(argv: Sequence[str] | None = None) -> int:
    """Tell it on stdout; 1 with one line on stderr where there is no such model, or no engine with it."""
    options = parser().parse_args(argv)
    profile = Profile(options.length, options.answer, options.think, options.least)
    logging.basicConfig(level=logging.WARNING)
    parent_death.remember_spawner()
    try:
        config = WorkerConfig.from_environ(options.model, "capacity", {"STREAMS_URL": "", **os.environ})
        served = load_host(config.host).served_model(config.model)
        asyncio.run(_tell(config, served, profile, options.gpu or (), with_speed=not options.no_speed))
    except (BadSetting, NotServed, SourceError, EngineDead, TokensError) as error:
        sys.stderr.write(" ".join(str(error).split()) + "\n")
        return 1
    return 0


def parser() -> argparse.ArgumentParser:
    """Which model, and how people chat."""
    parser = argparse.ArgumentParser(prog="python -m inference.capacity_report", description="Tell a model's capacity.")
    parser.add_argument("--model", required=True, help="slug of the model's row")
    add_profile(parser)
    return parser


async def _tell(
    config: WorkerConfig, served: ServedModel, profile: Profile, gpus: Sequence[int], *, with_speed: bool
) -> None:
    sys.stderr.write(f"Loading {config.model} …\n")
    folder = fetch(Source.parse(served.source), served.revision, cache=config.model_cache).folder
    engine = VllmEngine(vllm_config(config, served, folder))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # importing vLLM meets deprecations in torch and in itself
        await engine.start()
    try:
        capacity = Capacity(engine.shape, engine.kv_cache, engine.context_window)
        _write([*memory(config.model, capacity), *lengths(capacity)])
        if with_speed:
            await _tell_speed(engine, Tokenizer.load(folder), capacity, profile)
        _write(changes(capacity, profile, gpus))
    finally:
        await engine.stop()


async def _tell_speed(engine: VllmEngine, tokenizer: Tokenizer, capacity: Capacity, profile: Profile) -> None:
    speeds: list[Speed] = []
    _write(["", "Decoding, measured:", f"{'sequences':>12} {'tokens/s':>10} {'each':>8}"])
    async for speed in measured(engine, tokenizer, batches(engine.slots)):
        speeds.append(speed)
        _write([f"{speed.batch:>12} {speed.tokens_per_s:>10.1f} {speed.each:>8.1f}"])
    _write(people(advised(capacity, speeds, profile), profile))


def _write(lines: Sequence[str]) -> None:
    for line in lines:
        sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def memory(slug: str, capacity: Capacity) -> list[str]:
    """What weights and cache take, and the formula."""
    shape, cache = capacity.shape, capacity.cache
    return [
        f"Model {slug}: {shape.parameters:,} parameters of {shape.weight_bytes:g} bytes, "
        f"{shape.weights / MIB:,.0f} MiB of weights, a window of {capacity.window:,} tokens",
        f"KV cache: {cache.blocks:,} blocks of {cache.block_tokens} tokens, "
        f"{cache.blocks * cache.block_tokens:,} tokens in {capacity.cache_bytes / MIB:,.0f} MiB",
        f"A token: 2 × {shape.layers} layers × {shape.kv_heads} KV heads × {shape.head_size} elements "
        f"× {shape.kv_bytes:g} bytes = {shape.bytes_per_token:,.0f} bytes",
    ]


def lengths(capacity: Capacity) -> list[str]:
    """How many fit."""
    told = sorted({*(length for length in LENGTHS if length < capacity.window), capacity.window})
    rows = [f"{length:>12,} {capacity.sequences(length):>10,}" for length in told]
    return ["", "Sequences that fit at once:", f"{'tokens each':>12} {'sequences':>10}", *rows]


def people(advice: Advice, profile: Profile) -> list[str]:
    """How many are served."""
    how = (
        f"chats of {profile.sequence_tokens:,} tokens, answers of {profile.answer_tokens:,}, "
        f"{profile.think_s:g} s between them"
    )
    if not advice.batch:
        why = "not even one answer is that fast" if advice.limit == "speed" else "not even one such chat fits"
        return ["", f"People at {how}, {profile.least_each:g} tokens/s for each: none, since {why}."]
    return [
        "",
        f"People at {how}, {profile.least_each:g} tokens/s for each: about {advice.users:,}, "
        f"{advice.batch} answers at a time; the limit is {advice.limit}.",
    ]


def changes(capacity: Capacity, profile: Profile, gpus: Sequence[int]) -> list[str]:
    """What would be otherwise, in sequences of the profile's length."""
    return ["", f"Sequences of {profile.sequence_tokens:,} tokens, if changed:", *_changes(capacity, profile, gpus)]


def _changes(capacity: Capacity, profile: Profile, gpus: Sequence[int]) -> Iterator[str]:
    shape = capacity.shape
    variants = {
        "as it is": capacity,
        "KV cache as FP8": capacity.with_kv_bytes(1),
        "weights as FP8, memory shared with the cache": capacity.with_weight_bytes(1),
        "weights of 4 bits, likewise": capacity.with_weight_bytes(0.5),
        f"a window of {capacity.window // 2:,} tokens": capacity.with_window(capacity.window // 2),
    }
    for gib in gpus:
        left = gib * GIB * UTILIZATION - shape.weights - BESIDE_GIB * GIB
        variants[f"a GPU of {gib} GiB"] = capacity.with_memory(left)
    for name, changed in variants.items():
        yield f"{changed.sequences(profile.sequence_tokens):>12,}  {name}"


if __name__ == "__main__":
    sys.exit(main())
