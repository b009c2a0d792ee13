"""The first question to an engine that has just loaded: what passes, and what does not."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from inference import probe as probing
from inference.engine import FinishReason, Generation, Step
from inference.probe import ProbeFailed, probe
from inference.scripted_engine import Failure, Script, ScriptedEngine
from inference.tokens import Tokenizer
from tests.real_model import model_folder


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.load(model_folder())


async def probed(script: Script, tokenizer: Tokenizer) -> None:
    engine = ScriptedEngine(script, tokenizer)
    await engine.start()
    try:
        await probe(engine, tokenizer)
    finally:
        await engine.stop()


async def test_an_engine_that_answers_passes_and_holds_nothing_afterwards(tokenizer: Tokenizer) -> None:
    engine = ScriptedEngine(Script(text="Hello, and much more than anybody wants to hear."), tokenizer)
    await engine.start()
    await probe(engine, tokenizer)
    assert (engine.load().requests, engine.load().output_tokens) == (0, probing.MOST_TOKENS)
    await engine.stop()


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (Script(text=""), "answered with nothing"),
        (Script(failure=Failure.GENERATION_FAILED), "the probe failed"),
        (Script(failure=Failure.PROMPT_REJECTED), "the probe failed"),
        (Script(failure=Failure.ENGINE_DEAD), "the probe failed"),
    ],
)
async def test_one_that_does_not_is_found_out(tokenizer: Tokenizer, script: Script, reason: str) -> None:
    with pytest.raises(ProbeFailed, match=reason):
        await probed(script, tokenizer)


async def test_one_that_says_nothing_is_not_waited_for(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "PATIENCE_S", 0.2)
    with pytest.raises(ProbeFailed, match="no answer within"):
        await probed(Script(failure=Failure.ENGINE_SILENT), tokenizer)


async def test_weights_of_another_model_than_the_tokenizers_are_found_out(tokenizer: Tokenizer) -> None:
    class Foreign(ScriptedEngine):
        async def generate(self, _generation: Generation) -> AsyncGenerator[Step, None]:
            yield Step((1, 2_000_000), FinishReason.STOP)

    with pytest.raises(ProbeFailed, match="files of two models"):
        await probe(Foreign(Script(), tokenizer), tokenizer)
