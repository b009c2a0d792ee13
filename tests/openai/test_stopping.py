"""A web process that is stopped: an answer there goes on for a while; then its client is told to ask again."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import openai
import psycopg
import pytest
from openai import OpenAI
from openai.types.chat import ChatCompletionMessageParam

from tests.browser.visitor import scripted
from tests.stack.stack import MODEL, Process, Stack, web_beside

UNENDING: list[ChatCompletionMessageParam] = [{"role": "user", "content": scripted("Word by word.", unending=True)}]
NEWEST = "SELECT status FROM chat_run ORDER BY id DESC LIMIT 1"
PATIENCE_S = 30


@pytest.fixture
def elsewhere(scripted_stack: Stack, second_web: tuple[Process, int]) -> Iterator[OpenAI]:
    """A client of the second web process that does not try again."""
    url = f"http://127.0.0.1:{second_web[1]}/v1"
    with OpenAI(base_url=url, api_key=scripted_stack.key, max_retries=0) as client:
        yield client


def stopped_meanwhile(stack: Stack, web: Process, ask: Callable[[], object]) -> openai.APIError:
    """Stop the process while it answers; returns what its client is told."""

    async def both() -> BaseException | object:
        asking = asyncio.create_task(asyncio.to_thread(ask))
        await until(stack, "streaming")
        await asyncio.to_thread(web.stop)
        return (await asyncio.gather(asking, return_exceptions=True))[0]

    told = asyncio.run(both())
    assert web.popen.returncode == -signal.SIGTERM, "it had to be killed"
    asyncio.run(until(stack, "cancelled"))
    assert isinstance(told, openai.APIError), told
    return told


async def until(stack: Stack, status: str) -> None:
    """The newest run stands so."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with psycopg.connect(stack.database_url) as database:
                if database.execute(NEWEST).fetchone() == (status,):
                    return
            await asyncio.sleep(0.05)


def test_in_the_middle_of_a_stream(scripted_stack: Stack, second_web: tuple[Process, int], elsewhere: OpenAI) -> None:
    error = stopped_meanwhile(
        scripted_stack,
        second_web[0],
        lambda: list(elsewhere.chat.completions.create(model=MODEL, messages=UNENDING, stream=True)),
    )
    assert error.code == "stopping"


def test_before_a_whole_answer(scripted_stack: Stack, second_web: tuple[Process, int], elsewhere: OpenAI) -> None:
    error = stopped_meanwhile(
        scripted_stack, second_web[0], lambda: elsewhere.chat.completions.create(model=MODEL, messages=UNENDING)
    )
    assert isinstance(error, openai.InternalServerError)
    assert (error.code, error.status_code) == ("stopping", 503)
    assert error.response.headers["x-should-retry"] == "true"


@pytest.mark.parametrize("is_streamed", [True, False])
def test_an_answer_that_ends_soon_is_whole(scripted_stack: Stack, tmp_path: Path, is_streamed: bool) -> None:
    long: list[ChatCompletionMessageParam] = [{"role": "user", "content": scripted("Word by word. " * 15)}]
    patient = replace(scripted_stack, environ={**scripted_stack.environ, "WEB_DRAIN_S": "60"})
    with web_beside(patient, tmp_path) as (web, port):
        client = OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=scripted_stack.key, max_retries=0)

        def ask() -> str:
            if not is_streamed:
                whole = client.chat.completions.create(model=MODEL, messages=long)
                return whole.choices[0].message.content or ""
            pieces = client.chat.completions.create(model=MODEL, messages=long, stream=True)
            return "".join(piece.choices[0].delta.content or "" for piece in pieces)

        async def both() -> str:
            asking = asyncio.create_task(asyncio.to_thread(ask))
            await until(scripted_stack, "streaming")
            web.popen.send_signal(signal.SIGTERM)
            return await asking

        with client:
            assert asyncio.run(both()) == "Word by word. " * 15
        assert web.popen.wait(PATIENCE_S) == -signal.SIGTERM
