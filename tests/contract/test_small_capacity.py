"""What is predicted of an engine's capacity is what the real one holds and says."""

from __future__ import annotations

import asyncio
import re

import pytest

from inference import capacity_report
from inference.capacity import Capacity
from inference.engine import Generation, Sampling
from inference.tokens import Tokenizer, Turn
from inference.vllm_engine import VllmEngine
from scheduler import rollouts
from scheduler.models import Model, ModelVersion
from tests.engine_under_test import WINDOW
from tests.real_model import model_folder

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.django_db(transaction=True),
    pytest.mark.timeout(300),
]

# Prompt and answer together take two blocks from the first token to the last.
PROMPT_TOKENS, CAP, MORE = 160, 60, 3
BLOCKS = 40


def prompt(number: int) -> list[int]:
    """With no other a beginning in common: blocks that are shared would count once."""
    tokenizer, text = Tokenizer.load(model_folder()), f"{number} foxes."
    while len(ids := tokenizer.encode_chat([Turn("user", text)])) < PROMPT_TOKENS:
        text += f" And {number} on."
    return ids


@pytest.mark.asyncio(loop_scope="package")
async def test_as_many_sequences_run_together_as_predicted(small_engine: VllmEngine) -> None:
    engine = small_engine
    predicted = Capacity(engine.shape, engine.kv_cache, engine.context_window).sequences(PROMPT_TOKENS + CAP)
    before, most = engine.load().preemptions, 0

    async def answer(number: int) -> None:
        nonlocal most
        generation = Generation(f"capacity:{number}", prompt(number), CAP, Sampling(temperature=1, seed=number))
        async for _ in engine.generate(generation):
            most = max(most, engine.load().running)

    await asyncio.gather(*(answer(number) for number in range(predicted + MORE)))

    assert predicted > MORE
    assert abs(most - predicted) <= 0.05 * predicted
    assert engine.load().preemptions == before


def test_the_report_tells_what_the_engines_own_log_does(
    model: Model, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    rollouts.adopt(ModelVersion.objects.create(model=model, source=model.source, context_window=WINDOW))
    monkeypatch.setenv("DATABASE_POOL", "5")  # or the worker's, set by its host, would be that of tests to come
    monkeypatch.setenv("KV_CACHE_BLOCKS", str(BLOCKS + 1))
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "INFO")

    assert capacity_report.main(["--model", model.pk, "--length", "512", "--gpu", "24", "--no-speed"]) == 0

    told, log = capfd.readouterr()
    [logged] = re.findall(r"KV cache size: ([\d,]+) tokens", told + log)
    [tokens] = re.findall(r"([\d,]+) tokens in ", told)
    assert number(tokens) == BLOCKS * 128
    assert number(logged) == number(tokens) + 128  # vLLM keeps one block for itself
    assert "2 × 30 layers × 3 KV heads × 64 elements × 4 bytes = 46,080 bytes" in told
    assert "134,515,008 parameters of 4 bytes, 513 MiB of weights" in told
    assert re.search(r"^ +512 +10$", told, re.MULTILINE)
    assert re.search(r"^ +40  KV cache as FP8$", told, re.MULTILINE)


def number(text: str) -> int:
    return int(text.replace(",", ""))
