"""Both engines, each started once."""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from inference.engine import Engine
from inference.scripted_engine import Script, ScriptedEngine
from inference.tokens import Tokenizer, Turn
from inference.vllm_engine import VllmConfig, VllmEngine
from tests.engine_under_test import REAL, Subject
from tests.real_model import model_folder

CAPITAL = "What is the capital of France?"


def pytest_configure(config: pytest.Config) -> None:
    """Let vLLM leave its ZeroMQ context to the garbage collector, which may come as late as pytest's own end."""
    config.addinivalue_line("filterwarnings", "ignore:Unclosed context <zmq:ResourceWarning")


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["scripted", REAL])
async def subject(request: pytest.FixtureRequest) -> AsyncIterator[Subject]:
    """Started once per module: the real one takes about a minute."""
    tokenizer = Tokenizer.load(model_folder())
    brief, long = CAPITAL, "Write a long story about a fox."
    engine: Engine
    if request.param == "vllm":
        engine = VllmEngine(VllmConfig(model_folder(), drain_s=1))
    else:
        engine = ScriptedEngine(Script(tokens_per_s=200, chars=4000), tokenizer)
        brief += ' [[script {"text": "Paris."}]]'
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # importing vLLM meets a dozen deprecations in torch and in itself
        await engine.start()
    prompts = [tokenizer.encode_chat([Turn("user", question)]) for question in (brief, long)]
    yield Subject(request.param, engine, tokenizer, *prompts)
    await engine.stop()
