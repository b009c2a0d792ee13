"""OpenAI's client, and the real engine with the default model. Before those tests that end that engine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from openai import OpenAI
from openai.types.chat import ChatCompletionMessageParam

from tests.stack.stack import MODEL, Stack

PATIENCE_S = 120

CAPITAL: list[ChatCompletionMessageParam] = [{"role": "user", "content": "What is the capital of France?"}]
COUNT: list[ChatCompletionMessageParam] = [
    {"role": "system", "content": "You count."},
    {"role": "user", "content": "Count from 1 to 9, with commas."},
]


@pytest.fixture
def client(vllm_stack: Stack) -> Iterator[OpenAI]:
    with OpenAI(
        base_url=f"http://127.0.0.1:{vllm_stack.port}/v1", api_key=vllm_stack.key, timeout=PATIENCE_S
    ) as client:
        yield client


def test_it_answers_as_a_whole_and_in_pieces(client: OpenAI) -> None:
    greedy = {"model": MODEL, "messages": CAPITAL, "temperature": 0, "max_tokens": 24}
    whole = client.chat.completions.create(**greedy)  # type: ignore[call-overload]
    pieces = client.chat.completions.create(**greedy, stream=True)  # type: ignore[call-overload]

    text = whole.choices[0].message.content
    assert "Paris" in text
    assert "".join(piece.choices[0].delta.content or "" for piece in pieces) == text


def test_wishes_reach_the_engine(client: OpenAI) -> None:
    def said(**wishes: object) -> str:
        answer = client.chat.completions.create(model=MODEL, messages=COUNT, max_tokens=24, **wishes)  # type: ignore[call-overload]
        return str(answer.choices[0].message.content)

    plain = said(temperature=0)
    assert "," in plain
    stopped = said(temperature=0, stop=",")
    assert plain.startswith(stopped)
    assert "," not in stopped
    assert said(temperature=0, frequency_penalty=2, presence_penalty=2) != plain
    assert said(temperature=1.5, seed=7) == said(temperature=1.5, seed=7) != said(temperature=1.5, seed=8)


def test_a_response_goes_on_from_another(client: OpenAI) -> None:
    first = client.responses.create(model=MODEL, input="My name is Ada. Say hello.", temperature=0)
    *_, last = client.responses.create(
        model=MODEL, input="What is my name?", previous_response_id=first.id, temperature=0, stream=True
    )

    assert last.type == "response.completed"
    assert first.usage
    assert last.response.usage
    assert last.response.usage.input_tokens > first.usage.total_tokens
