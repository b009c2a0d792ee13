"""An engine without a model, for tests and load runs: it makes its answers up, and batches them as a real one does."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import random
import zlib
from collections import Counter
from collections.abc import AsyncGenerator, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any, Final

from inference.engine import (
    EngineDead,
    EngineError,
    FinishReason,
    Generation,
    GenerationFailed,
    KvCache,
    Load,
    PromptRejected,
    Step,
)
from inference.scripted_prefix_cache import Chain, PrefixCache
from inference.tokens import Tokenizer

logger = logging.getLogger(__name__)

ENVIRONMENT_PREFIX = "SCRIPT_"
DIRECTIVE: Final = "[[script "
CATCH_UP_S = 1.0  # an engine that was held up longer goes on from now

PHRASES = (
    "The quick brown fox jumps over the lazy dog. ",
    "素早い茶色の狐がのろまな犬を飛び越える。",
    "敏捷的棕色狐狸跳过了懒狗。",
    "روباه قهوه‌ای چابک از روی سگ تنبل می‌پرد. ",
    "👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽 🇮🇷 ",
    "e\u0301a\u0308o\u0302\u0323 Z\u0351\u036b\u0343a\u0335lgo ",
    "तेज़ भूरी लोमड़ी आलसी कुत्ते पर कूदती है। ",
    "השועל החום המהיר קופץ. ",
    "1. `code`\n2. **bold** <b>&amp;</b>\n\n",
    "빠른 갈색 여우가 게으른 개를 뛰어넘는다. ",
)


class Failure(StrEnum):
    """What goes wrong on demand."""

    GENERATION_FAILED = "generation_failed"
    PROMPT_REJECTED = "prompt_rejected"
    ENGINE_DEAD = "engine_dead"
    ENGINE_SILENT = "engine_silent"  # it lives, and says nothing any more


@dataclass(frozen=True, slots=True)
class Script:
    """How the engine behaves.

    A prompt may change what is marked with * for its own answer: the last `[[script {"text": "Hello", ...}]]` in it, a
    JSON object with these names, counts.
    """

    slots: int = 16
    tokens_per_s: float = 50.0  # of each running sequence
    context_window: int = 8192
    kv_blocks: int = 1_000_000  # fewer than its sequences need, and it preempts
    block_tokens: int = 16
    prefix_caching: bool = False  # blocks that were computed are found again, as far as `kv_blocks` leave them room
    prefill_tokens_per_s: float = 0.0  # of all prompts, one after the other, cached tokens aside; 0: they take no time
    text: str | None = None  # * None: `chars` characters in many scripts, by the prompt's ids and the seed
    chars: int = 400  # *
    salt: int = 0  # engines with different ones make different answers up, as a model that samples does
    tokens_per_step: int = 1  # *
    first_token_ms: float = 0.0  # * after its prompt, and after it started
    split_characters: bool = False  # * one token per byte
    cached_tokens: int = 0  # * more than 0: so many of the prompt's, if it has them, are said to be cached
    failure: Failure | None = None  # *
    # * How many tokens of the answer come before the failure. An attempt that continues from there or later is spared.
    fail_after_tokens: int = 0
    unending: bool = False  # * the answer stands, and does not end until it is aborted or at its cap

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Script:
        """The script in `SCRIPT_SLOTS`, `SCRIPT_TEXT` and so on. Raises `ValueError`."""
        names = {name: f"{ENVIRONMENT_PREFIX}{name.upper()}" for name in _PARSERS}
        found = {name: environment[key] for name, key in names.items() if environment.get(key)}
        return cls(**{name: _PARSERS[name](value) for name, value in found.items()})

    def for_prompt(self, prompt: str) -> Script:
        """This script as the prompt's last directive changes it. Raises `ValueError` for one that cannot be read."""
        start = prompt.rfind(DIRECTIVE)
        if start < 0:
            return self
        wishes, _ = json.JSONDecoder().raw_decode(prompt, start + len(DIRECTIVE))
        unknown = set(wishes) - _PER_PROMPT
        if unknown:
            raise ValueError(f"a prompt cannot set {', '.join(sorted(unknown))}")
        return replace(self, **{name: _PARSERS[name](value) for name, value in wishes.items()})


def _flag(value: str | bool) -> bool:
    return value in {True, "1", "true", "yes"}


_PARSERS: Final[dict[str, Any]] = {
    "slots": int,
    "tokens_per_s": float,
    "context_window": int,
    "kv_blocks": int,
    "block_tokens": int,
    "prefix_caching": _flag,
    "prefill_tokens_per_s": float,
    "text": str,
    "chars": int,
    "salt": int,
    "tokens_per_step": int,
    "first_token_ms": float,
    "split_characters": _flag,
    "cached_tokens": int,
    "failure": Failure,
    "fail_after_tokens": int,
    "unending": _flag,
}
_OF_ENGINE: Final = {
    *("slots", "tokens_per_s", "context_window", "kv_blocks", "block_tokens", "salt"),
    *("prefix_caching", "prefill_tokens_per_s"),
}
_PER_PROMPT: Final = set(_PARSERS) - _OF_ENGINE
assert set(_PARSERS) == {entry.name for entry in fields(Script)}


@dataclass(slots=True)
class _Sequence:
    """One answer on its way out."""

    generation: Generation
    script: Script
    answer: Sequence[int]
    begun_at: int  # tokens of the answer that an earlier attempt has emitted
    cap: int
    ids: list[int]  # the prompt, and the answer so far
    prefill_s: float = 0.0  # what is left to do of its prompt
    ready_at: float = 0.0  # loop time of the first token, once its prompt is done
    cached_tokens: int = 0
    is_counted: bool = False
    emitted: int = 0
    blocks: Chain = field(default_factory=list)
    steps: asyncio.Queue[Step | EngineError] = field(default_factory=asyncio.Queue)

    def next_step(self) -> Step:
        """The next ids. The end of the answer costs a step of its own, as a real model's end-of-sequence token does."""
        position = self.begun_at + self.emitted
        until_failure = self._tokens_until_failure(position)
        count = min(self.script.tokens_per_step, self.cap - self.emitted, until_failure)
        ids = tuple(self.answer[position : position + count])
        cached = 0 if self.emitted else self.cached_tokens
        self.emitted += len(ids)
        self.ids += ids
        return Step(ids, self._finish_reason(ids), cached, self.input_tokens)

    @property
    def input_tokens(self) -> int:
        """Those of its prompt."""
        return len(self.generation.prompt_ids)

    @property
    def tokens(self) -> int:
        """What it keeps in the cache: its prompt, and the answer so far."""
        return len(self.ids)

    @property
    def tokens_after_step(self) -> int:
        """What it may keep there after its next step."""
        return self.tokens + min(self.script.tokens_per_step, self.cap - self.emitted)

    def begin(self, now: float, prefill_s: float) -> None:
        """It runs from now on, and its next token takes as long as a first one."""
        self.prefill_s = prefill_s
        self.ready_at = now + self.script.first_token_ms / 1000

    def prefill(self, now: float, spare_s: float) -> float:
        """Go on with its prompt for the `spare_s` before now; returns what is left of them to those after it."""
        if not self.prefill_s:
            return spare_s
        done_s = min(self.prefill_s, spare_s)
        self.prefill_s -= done_s
        self.ready_at = now - (spare_s - done_s) + self.script.first_token_ms / 1000
        return spare_s - done_s

    def is_ready(self, now: float) -> bool:
        """Whether it can have its next token."""
        return not self.prefill_s and self.ready_at <= now

    @property
    def is_held(self) -> bool:
        """Whether it has said all, and does not end."""
        return self.script.unending and self.begun_at + self.emitted >= len(self.answer)

    def _finish_reason(self, ids: Sequence[int]) -> FinishReason | None:
        if not ids:
            return FinishReason.STOP
        return FinishReason.LENGTH if self.emitted == self.cap else None

    def _tokens_until_failure(self, position: int) -> int:
        if self.script.failure is None or self.begun_at >= self.script.fail_after_tokens:
            return self.cap
        return self.script.fail_after_tokens - position

    @property
    def due_failure(self) -> Failure | None:
        """The failure that strikes now, if any."""
        after = self.script.fail_after_tokens
        spared = 0 < after <= self.begun_at
        return None if spared or self.begun_at + self.emitted != after else self.script.failure


class ScriptedEngine:
    """Imitates continuous batching: at most `slots` sequences run, the rest wait, a step gives each its next ids.

    A sequence starts when the KV cache has blocks for its prompt. When those that run have outgrown the cache, the last
    to come is preempted: it waits, ahead of the others, and then for its next token as long as for a first one.

    Prompts take their time one after the other, while those before them decode. As vLLM with its token budget, a step
    starts nobody while it has more than a step's work left on prompts: the next may find in the prefix cache what they
    leave there. What the cache has is looked up when a sequence starts. Blocks that running sequences share count for
    each of them.

    No model is loaded. The same prompt gives the same answer, and a prompt that ends with the first ids of its answer
    gives the rest. One task steps for all sequences, at fixed times: thousands are cheap, and rates do not drift.
    """

    def __init__(self, script: Script, tokenizer: Tokenizer) -> None:
        self._script = script
        self._tokenizer = tokenizer
        self._kv_cache = KvCache(script.kv_blocks, script.block_tokens)
        self._prefixes = PrefixCache(script.block_tokens)
        self._waiting: dict[str, _Sequence] = {}
        self._running: dict[str, _Sequence] = {}
        self._peak_running = 0
        self._preemptions = 0
        self._tokens = Counter[str]()
        self._steps = 0
        self._stepped_at = 0.0
        self._work = asyncio.Event()
        self._stepping: asyncio.Task[None] | None = None
        self._silent = False
        self._is_dead = False

    @property
    def slots(self) -> int:
        """The most sequences in one step."""
        return self._script.slots

    @property
    def context_window(self) -> int:
        """The script's."""
        return self._script.context_window

    @property
    def kv_cache(self) -> KvCache:
        """As large as the script says."""
        return self._kv_cache

    async def start(self) -> None:
        """Begin to step. Raises `EngineDead` when the cache is smaller than the window."""
        self._kv_cache.check_holds(self.context_window)
        logger.warning("scripted_engine_started: no model is loaded, answers are made up")
        self._stepping = asyncio.create_task(self._step_for_ever(), name="scripted-engine")

    async def generate(self, generation: Generation) -> AsyncGenerator[Step, None]:
        """Yield steps until one has a finish reason; see `Engine.generate`."""
        self.check_health()
        if generation.request_id in self._waiting or generation.request_id in self._running:
            raise ValueError(f"request id {generation.request_id} is in use")
        sequence = self._waiting[generation.request_id] = self._sequence(generation)
        self._work.set()
        try:
            finished = False
            while not finished:
                step = await sequence.steps.get()
                if isinstance(step, EngineError):
                    raise step
                finished = step.finish_reason is not None
                yield step
        finally:
            self._forget(sequence)

    async def abort(self, request_id: str) -> None:
        """End a request at once."""
        sequence = self._waiting.get(request_id) or self._running.get(request_id)
        if sequence is not None:
            self._end(sequence, Step((), FinishReason.ABORT, input_tokens=sequence.input_tokens))

    def check_health(self) -> None:
        """Raise `EngineDead` unless the engine is stepping."""
        if self._is_dead or self._stepping is None or self._stepping.done():
            raise EngineDead("the scripted engine is not running")

    def load(self) -> Load:
        """Current load."""
        return Load(
            running=len(self._running),
            waiting=len(self._waiting),
            peak_running=self._peak_running,
            kv_cache_usage=self._blocks_held() / self._script.kv_blocks,
            requests=len(self._running) + len(self._waiting),
            steps=self._steps,
            preemptions=self._preemptions,
            input_tokens=self._tokens["input"],
            output_tokens=self._tokens["output"],
            prefix_queries=self._tokens["looked up"],
            prefix_hits=self._tokens["cached"],
        )

    def kill(self) -> None:
        """Stop stepping; every request raises `EngineDead`."""
        self._die("killed")

    async def stop(self) -> None:
        """Abort what runs and stop stepping. Safe to repeat."""
        for request_id in [*self._waiting, *self._running]:
            await self.abort(request_id)
        if self._stepping is not None:
            self._stepping.cancel()
            await asyncio.wait({self._stepping})

    def _sequence(self, generation: Generation) -> _Sequence:
        self._refuse_bad(generation)
        question, begun = _divided(generation.prompt_ids, self._tokenizer.generation_prompt_ids)
        try:
            script = self._script.for_prompt(self._tokenizer.decode(question))
        except (ValueError, TypeError) as error:
            raise PromptRejected(f"the script in the prompt cannot be read: {error}") from error
        if script.failure is Failure.PROMPT_REJECTED:
            raise PromptRejected("as the script has it")
        answer = self._answer(script, question, generation)
        continues = tuple(answer[: len(begun)]) == tuple(begun)
        return _Sequence(
            generation=generation,
            script=script,
            answer=answer,
            begun_at=len(begun) if continues else 0,
            cap=min(generation.max_output_tokens, self._script.context_window - len(generation.prompt_ids)),
            ids=list(generation.prompt_ids),
        )

    def _refuse_bad(self, generation: Generation) -> None:
        prompt = generation.prompt_ids
        if not prompt:
            raise PromptRejected("the prompt is empty")
        if min(prompt) < 0 or max(prompt) >= self._tokenizer.vocab_size:
            raise PromptRejected("a token id is out of vocabulary")
        if len(prompt) >= self._script.context_window:
            raise PromptRejected(f"{len(prompt)} tokens leave no room in a window of {self._script.context_window}")
        if generation.max_output_tokens < 1:
            raise PromptRejected("the output cap must be at least 1")

    def _answer(self, script: Script, question: Sequence[int], generation: Generation) -> list[int]:
        text = script.text
        if text is None:
            text = _text_in_many_scripts(question, (generation.sampling.seed, script.salt), script.chars)
        return self._tokenizer.encode_bytes(text) if script.split_characters else self._tokenizer.encode_text(text)

    async def _step_for_ever(self) -> None:
        """Step at fixed times while there is work; the first step after a pause comes at once."""
        loop = asyncio.get_running_loop()
        step_s = 1 / self._script.tokens_per_s
        due = loop.time()
        while True:
            if self._silent or not (self._waiting or self._running):
                self._work.clear()
                await self._work.wait()
                due = max(due, loop.time())
            await asyncio.sleep(due - loop.time())
            self._step(loop.time())
            due = max(due + step_s, loop.time() - CATCH_UP_S)

    def _step(self, now: float) -> None:
        if self._silent:
            return
        self._steps += 1
        self._prefill(now)
        self._preempt()
        self._admit(now)
        if self._script.prefix_caching:
            self._prefixes.evict(max(0, self._script.kv_blocks - self._blocks_needed()))
        self._peak_running = max(self._peak_running, len(self._running))
        for sequence in list(self._running.values()):
            if sequence.is_ready(now):
                self._advance(sequence)

    def _prefill(self, now: float) -> None:
        """Go on with the prompts of those that run, in the order in which they started."""
        spare_s, self._stepped_at = now - self._stepped_at, now
        for sequence in self._running.values():
            spare_s = sequence.prefill(now, spare_s)

    def _preempt(self) -> None:
        """Send the last comers back until the others have blocks for this step."""
        while len(self._running) > 1 and self._blocks_needed() > self._script.kv_blocks:
            request_id, sequence = self._running.popitem()
            self._let_go(sequence)
            self._waiting = {request_id: sequence, **self._waiting}
            self._preemptions += 1

    def _admit(self, now: float) -> None:
        """Start those who wait, in their order, while there are slots, blocks for this step and time for prompts."""
        free_slots = self._script.slots - len(self._running)
        free_blocks = self._script.kv_blocks - self._blocks_needed() if self._waiting and free_slots else 0
        prefill_s = sum(sequence.prefill_s for sequence in self._running.values())
        for request_id, sequence in list(self._waiting.items())[:free_slots]:
            free_blocks -= self._kv_cache.blocks_for(sequence.tokens_after_step)
            if free_blocks < 0 or prefill_s >= 1 / self._script.tokens_per_s:
                return
            self._running[request_id] = self._waiting.pop(request_id)
            self._begin(sequence, now)
            prefill_s += sequence.prefill_s

    def _begin(self, sequence: _Sequence, now: float) -> None:
        wished = min(sequence.script.cached_tokens, sequence.input_tokens)
        cached = wished or self._prefixes.cached_tokens(sequence.ids)
        self._hold(sequence, sequence.tokens)  # from now, as in vLLM: whoever starts after it is computed after it
        rate = self._script.prefill_tokens_per_s
        sequence.begin(now, (sequence.tokens - cached) / rate if rate else 0.0)
        if not sequence.is_counted:
            sequence.is_counted, sequence.cached_tokens = True, cached
            self._tokens.update({"looked up": sequence.input_tokens, "cached": cached})

    def _hold(self, sequence: _Sequence, computed_tokens: int) -> None:
        if self._script.prefix_caching:
            self._prefixes.hold(sequence.blocks, sequence.ids, computed_tokens)

    def _let_go(self, sequence: _Sequence) -> None:
        """Leave the blocks that it has computed to others."""
        left = math.ceil(sequence.prefill_s * self._script.prefill_tokens_per_s)
        self._prefixes.release(sequence.blocks, sequence.tokens - left)

    def _blocks_held(self) -> int:
        return sum(self._kv_cache.blocks_for(sequence.tokens) for sequence in self._running.values())

    def _blocks_needed(self) -> int:
        return sum(self._kv_cache.blocks_for(sequence.tokens_after_step) for sequence in self._running.values())

    def _advance(self, sequence: _Sequence) -> None:
        match sequence.due_failure:
            case Failure.GENERATION_FAILED:
                self._end(sequence, GenerationFailed("as the script has it"))
            case Failure.ENGINE_DEAD:
                self._die("as the script has it")
            case Failure.ENGINE_SILENT:
                self._silent = True
            case _ if sequence.is_held:
                pass
            case _:
                step = self._counted(sequence, sequence.next_step())
                # The last id of a step is computed in the next one, if any; the end of an answer is an id that was so.
                self._hold(sequence, sequence.tokens - bool(step.token_ids))
                if step.finish_reason is None:
                    sequence.steps.put_nowait(step)
                else:
                    self._end(sequence, step)

    def _counted(self, sequence: _Sequence, step: Step) -> Step:
        if sequence.emitted == len(step.token_ids):  # its first
            self._tokens["input"] += sequence.input_tokens
        self._tokens["output"] += len(step.token_ids)
        return step

    def _die(self, cause: str) -> None:
        self._is_dead = True
        if self._stepping is not None:
            self._stepping.cancel()
        for sequence in [*self._waiting.values(), *self._running.values()]:
            self._end(sequence, EngineDead(cause))

    def _end(self, sequence: _Sequence, last: Step | EngineError) -> None:
        self._forget(sequence)
        sequence.steps.put_nowait(last)

    def _forget(self, sequence: _Sequence) -> None:
        self._let_go(sequence)
        for sequences in (self._waiting, self._running):
            if sequences.get(sequence.generation.request_id) is sequence:
                del sequences[sequence.generation.request_id]


def _divided(prompt: Sequence[int], opening: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
    """The prompt up to where the answer opens, and the part of the answer that is already there."""
    for end in range(len(prompt), len(opening) - 1, -1):
        if opening and list(prompt[end - len(opening) : end]) == list(opening):
            return prompt[:end], prompt[end:]
    return prompt, ()


def _text_in_many_scripts(question: Sequence[int], seed: Hashable, chars: int) -> str:
    """A text of `chars` code points, the same for the same arguments."""
    dice = random.Random(zlib.crc32(repr((list(question), seed)).encode()))  # noqa: S311 - not for secrets
    text = ""
    while len(text) < chars:
        text += dice.choice(PHRASES)
    return text[:chars]
