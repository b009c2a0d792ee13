"""Both engines, each started once, and the real one with a small KV cache."""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from inference.engine import Engine
from inference.scripted_engine import Script, ScriptedEngine
from inference.tokens import Tokenizer
from inference.vllm_engine import VllmConfig, VllmEngine
from tests.engine_under_test import BLOCKS, REAL, Subject, small, subject_of
from tests.real_model import model_folder

# Blocks as large as those of vLLM's CPU build.
SCRIPT = Script(tokens_per_s=200, chars=4000, prefix_caching=True, block_tokens=128)


def pytest_configure(config: pytest.Config) -> None:
    """Let vLLM leave its ZeroMQ context to the garbage collector, which may come as late as pytest's own end."""
    config.addinivalue_line("filterwarnings", "ignore:Unclosed context <zmq:ResourceWarning")


async def started(engine: Engine) -> Engine:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # importing vLLM meets a dozen deprecations in torch and in itself
        await engine.start()
    return engine


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["scripted", REAL])
async def subject(request: pytest.FixtureRequest) -> AsyncIterator[Subject]:
    """Started once per module: the real one takes about a minute."""
    engine: Engine
    if request.param == "vllm":
        engine = VllmEngine(VllmConfig(model_folder(), drain_s=1))
    else:
        engine = ScriptedEngine(SCRIPT, Tokenizer.load(model_folder()))
    yield subject_of(request.param, await started(engine))
    await engine.stop()


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def small_engine() -> AsyncIterator[VllmEngine]:
    """vLLM with a small KV cache; whoever ends it is the last that uses it."""
    engine = VllmEngine(small(BLOCKS))
    await started(engine)
    yield engine
    await engine.stop()
