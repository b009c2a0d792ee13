"""Chat completions by OpenAI's own package, against the running product."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from tests.browser.visitor import scripted
from tests.stack.stack import MODEL, Stack

TEXT = "Grüße, 世界! سلام دنیا 👩‍👩‍👧‍👦."


@pytest.fixture
def client(scripted_stack: Stack) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"http://127.0.0.1:{scripted_stack.port}/v1", api_key=scripted_stack.key) as client:
        yield client


def asking(text: str, **wishes: object) -> list[dict[str, str]]:
    return [{"role": "user", "content": scripted(text, **wishes)}]


def test_an_answer_as_a_whole(client: OpenAI) -> None:
    completion = client.chat.completions.create(model=MODEL, messages=asking(TEXT))

    [choice] = completion.choices
    assert (choice.message.role, choice.message.content, choice.finish_reason) == ("assistant", TEXT, "stop")
    assert completion.usage
    assert completion.usage.completion_tokens == len(TEXT.encode())
    assert completion.usage.prompt_tokens + completion.usage.completion_tokens == completion.usage.total_tokens
    assert completion.model == MODEL


def test_an_answer_in_pieces(client: OpenAI) -> None:
    stream = client.chat.completions.create(
        model=MODEL, messages=asking(TEXT), stream=True, stream_options={"include_usage": True}
    )

    *chunks, last = stream
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == TEXT
    assert (chunks[0].choices[0].delta.role, chunks[-1].choices[0].finish_reason) == ("assistant", "stop")
    assert last.choices == []
    assert last.usage
    assert last.usage.completion_tokens == len(TEXT.encode())
    assert len({chunk.id for chunk in chunks}) == 1
