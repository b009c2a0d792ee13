"""manage.py capacity [MODEL]: how many sequences and people an engine with the model carries on this machine."""

from __future__ import annotations

import asyncio
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from inference.capacity import GIB, Advice, Capacity, Profile, Speed, advised, batches
from inference.engine import EngineDead
from inference.speeding import measured
from inference.tokens import Tokenizer, TokensError
from inference.vllm_engine import VllmEngine
from inference.worker import BadSetting, WorkerConfig, vllm_config
from scheduler.models import Model

LENGTHS = (256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
MIB = 2**20
# What a GPU has besides weights and cache, for a step's intermediate results and the driver: about so much, by what
# vLLM's own profiling usually finds for models of a few billion parameters.
BESIDE_GIB = 2.0
UTILIZATION = 0.92  # vLLM's default


class Command(BaseCommand):
    """Loads the model as a worker does, by the same settings; nothing else may need its memory meanwhile."""

    help = "Reads a model's real numbers from its engine, measures its speed, and says how many people that serves."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """Which model, and how people chat."""
        parser.add_argument("model", metavar="MODEL", nargs="?", help="its slug; the default one unless told")
        parser.add_argument(
            "--length", type=_positive, default=1024, help="tokens of a chat, answer included (%(default)s)"
        )
        parser.add_argument("--answer", type=_positive, default=250, help="tokens of an answer (%(default)s)")
        parser.add_argument("--think", type=_positive, default=30, help="seconds between answers (%(default)s)")
        parser.add_argument("--least", type=float, default=10.0, help="tokens/s that each must have (%(default)s)")
        parser.add_argument("--gpu", type=_positive, action="append", metavar="GIB", help="another GPU's memory")
        parser.add_argument("--no-speed", action="store_true", help="measure nothing")

    def handle(self, *_: Any, model: str | None, **options: Any) -> None:
        """Raises `CommandError` where there is no such model, or no engine with it."""
        row = model_of(model)
        profile = Profile(options["length"], options["answer"], options["think"], options["least"])
        try:
            asyncio.run(self._tell(row, profile, options["gpu"] or (), with_speed=not options["no_speed"]))
        except (EngineDead, BadSetting, TokensError) as error:
            raise CommandError(" ".join(str(error).split())) from error

    async def _tell(self, model: Model, profile: Profile, gpus: Sequence[int], *, with_speed: bool) -> None:
        self._say(f"Loading {model.slug} …")
        engine, tokenizer = engine_of(model), Tokenizer.load(model.source)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # importing vLLM meets deprecations in torch and in itself
            await engine.start()
        try:
            capacity = Capacity(engine.shape, engine.kv_cache, engine.context_window)
            self._write(memory(model.slug, capacity))
            self._write(lengths(capacity))
            if with_speed:
                await self._tell_speed(engine, tokenizer, capacity, profile)
            self._write(changes(capacity, profile, gpus))
        finally:
            await engine.stop()

    async def _tell_speed(self, engine: VllmEngine, tokenizer: Tokenizer, capacity: Capacity, profile: Profile) -> None:
        speeds: list[Speed] = []
        self._write(["", "Decoding, measured:", f"{'sequences':>12} {'tokens/s':>10} {'each':>8}"])
        async for speed in measured(engine, tokenizer, batches(engine.slots)):
            speeds.append(speed)
            self._write([f"{speed.batch:>12} {speed.tokens_per_s:>10.1f} {speed.each:>8.1f}"])
        self._write(people(advised(capacity, speeds, profile), profile))

    def _write(self, lines: Sequence[str]) -> None:
        for line in lines:
            self.stdout.write(line)

    def _say(self, line: str) -> None:
        self.stderr.write(line)


def model_of(named: str | None) -> Model:
    """Raises `CommandError`."""
    found = Model.objects.filter(pk=named) if named else Model.objects.filter(is_default=True)
    model = found.first()
    if model is None:
        raise CommandError(f"There is no model {named}." if named else "There is no default model: name one.")
    return model


def engine_of(model: Model) -> VllmEngine:
    """As a worker of the model has it. Raises `BadSetting`."""
    environ: Mapping[str, str] = {"STREAMS_URL": "", **os.environ}
    config = WorkerConfig.from_environ(model.pk, "capacity", environ)
    return VllmEngine(vllm_config(config, model.source, model.context_window))


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


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number
