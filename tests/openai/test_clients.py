"""Programs that speak OpenAI's protocol, against the running product: they just work."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletionMessageParam
from openai.types.responses import ResponseCompletedEvent, ResponseTextDeltaEvent

from tests.browser.visitor import LONG, scripted
from tests.stack.stack import MODEL, Stack

TEXT = "Grüße, 世界! سلام دنیا 👩‍👩‍👧‍👦."
TOKENS = len(TEXT.encode())  # the scripted stack's engine takes one a byte
PATIENCE_S = 60
DOC = Path(__file__).parents[2] / "docs" / "openai.md"


def asking(text: str) -> list[ChatCompletionMessageParam]:
    return [{"role": "user", "content": scripted(text)}]


def test_the_models(client: OpenAI) -> None:
    assert MODEL in [model.id for model in client.models.list()]
    assert client.models.retrieve(MODEL).id == MODEL


def test_a_completion_as_a_whole(client: OpenAI) -> None:
    completion = client.chat.completions.create(model=MODEL, messages=asking(TEXT))

    [choice] = completion.choices
    assert (choice.message.role, choice.message.content, choice.finish_reason) == ("assistant", TEXT, "stop")
    assert completion.usage
    assert completion.usage.completion_tokens == TOKENS
    assert completion.usage.prompt_tokens + TOKENS == completion.usage.total_tokens
    assert completion.model == MODEL


def test_a_completion_in_pieces(client: OpenAI) -> None:
    stream = client.chat.completions.create(
        model=MODEL, messages=asking(TEXT), stream=True, stream_options={"include_usage": True}
    )

    *chunks, last = stream
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == TEXT
    assert (chunks[0].choices[0].delta.role, chunks[-1].choices[0].finish_reason) == ("assistant", "stop")
    assert len(chunks) > 3
    assert last.choices == []
    assert last.usage
    assert last.usage.completion_tokens == TOKENS
    assert len({chunk.id for chunk in chunks}) == 1


async def test_both_at_once_with_the_asynchronous_client(base_url: str, scripted_stack: Stack) -> None:
    async with AsyncOpenAI(base_url=base_url, api_key=scripted_stack.key) as client:
        completion = await client.chat.completions.create(model=MODEL, messages=asking(TEXT))
        stream = await client.chat.completions.create(model=MODEL, messages=asking(TEXT), stream=True)
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
        response = await client.responses.create(model=MODEL, input=scripted(TEXT))

    assert completion.choices[0].message.content == text == response.output_text == TEXT


def test_a_response_as_a_whole_and_one_that_goes_on_from_it(client: OpenAI) -> None:
    first = client.responses.create(model=MODEL, input=scripted("One."), instructions="Be brief.")
    second = client.responses.create(model=MODEL, input=scripted("Two."), previous_response_id=first.id)

    assert (first.output_text, first.status, first.instructions) == ("One.", "completed", "Be brief.")
    assert (second.output_text, second.previous_response_id) == ("Two.", first.id)
    assert client.responses.retrieve(second.id) == second
    assert first.usage
    assert second.usage
    assert second.usage.input_tokens > first.usage.input_tokens


def test_a_response_in_the_background_is_read_later(client: OpenAI) -> None:
    response = client.responses.create(model=MODEL, input=scripted(TEXT), background=True)
    assert response.status in {"queued", "in_progress"}

    while response.status in {"queued", "in_progress"}:
        response = client.responses.retrieve(response.id)

    assert (response.status, response.output_text) == ("completed", TEXT)


@pytest.mark.parametrize("cut_after", [0, 1, 4, 20])
def test_a_stream_that_was_cut_is_resumed_exactly(client: OpenAI, cut_after: int) -> None:
    question = scripted(LONG, tokens_per_step=4)
    whole = list(client.responses.create(model=MODEL, input=question, stream=True, background=True))
    created = whole[0]
    assert created.type == "response.created"
    seen = whole[: cut_after + 1]

    rest = list(client.responses.retrieve(created.response.id, stream=True, starting_after=seen[-1].sequence_number))

    # Of an answer that is there as a whole, the rest comes in one piece.
    numbers = [event.sequence_number for event in [*seen, *rest]]
    assert numbers == sorted(set(numbers))
    deltas = [event.delta for event in [*seen, *rest] if isinstance(event, ResponseTextDeltaEvent)]
    assert "".join(deltas) == LONG
    assert rest[-4:] == whole[-4:]
    last = rest[-1]
    assert isinstance(last, ResponseCompletedEvent)
    assert last.response.output_text == LONG


def test_a_stream_that_is_cut_in_mid_answer_goes_on_where_it_was(client: OpenAI) -> None:
    seen = []
    with client.responses.create(model=MODEL, input=scripted(LONG), stream=True, background=True) as stream:
        for event in stream:
            seen.append(event)
            if len(seen) == 12:
                break
    created = seen[0]
    assert created.type == "response.created"

    for event in client.responses.retrieve(created.response.id, stream=True, starting_after=seen[-1].sequence_number):
        seen.append(event)

    assert "".join(event.delta for event in seen if isinstance(event, ResponseTextDeltaEvent)) == LONG
    assert len([event for event in seen if event.type == "response.completed"]) == 1


def test_a_response_is_cancelled(client: OpenAI) -> None:
    response = client.responses.create(model=MODEL, input=scripted("Late", first_token_ms=600_000), background=True)

    response = client.responses.cancel(response.id)
    while response.status in {"queued", "in_progress"}:
        response = client.responses.retrieve(response.id)

    assert response.status == "cancelled"


# In a process of its own: it is slow to load, and full of warnings.
LITELLM = """
import sys, litellm
model, url, key, question = sys.argv[1:]
messages = [{"role": "user", "content": question}]
asked = {"model": f"openai/{model}", "api_base": url, "api_key": key, "messages": messages}
print(litellm.completion(**asked).choices[0].message.content)
print("".join(piece.choices[0].delta.content or "" for piece in litellm.completion(**asked, stream=True)))
"""


def test_litellm(base_url: str, scripted_stack: Stack) -> None:
    environ = {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}  # it would ask the network for one

    told = said_by(["-c", LITELLM, MODEL, base_url, scripted_stack.key, scripted(TEXT)], environ)

    assert told == f"{TEXT}\n{TEXT}"


@pytest.mark.parametrize("how", [[], ["--no-stream"]])
def test_the_llm_command(base_url: str, scripted_stack: Stack, tmp_path: Path, how: list[str]) -> None:
    here = {"model_id": "palaver", "model_name": MODEL, "api_base": base_url, "api_key_name": "palaver"}
    (tmp_path / "extra-openai-models.yaml").write_text(json.dumps([here]))
    (tmp_path / "keys.json").write_text(json.dumps({"palaver": scripted_stack.key}))
    environ = {"LLM_USER_PATH": str(tmp_path), "LLM_LOAD_PLUGINS": ""}

    assert said_by(["-m", "llm", "-m", "palaver", scripted(TEXT), *how], environ) == TEXT


def test_the_example_of_the_documentation_works(base_url: str, scripted_stack: Stack) -> None:
    [example] = re.findall(r"```python\n(.*?)```", DOC.read_text(), re.DOTALL)
    for shown, here in {
        "http://127.0.0.1:8000/v1": base_url,
        "pal_…": scripted_stack.key,
        "SmolLM2-135M-Instruct": MODEL,
        "What is the capital of France?": scripted("Paris.").replace('"', r"\"") + "?",
    }.items():
        assert shown in example
        example = example.replace(shown, here)

    assert said_by(["-c", example], {}) == "Paris."


def said_by(arguments: list[str], environ: dict[str, str]) -> str:
    """What another Python prints."""
    command, environ = [sys.executable, *arguments], {**os.environ, **environ}
    told = subprocess.run(command, env=environ, capture_output=True, timeout=PATIENCE_S, check=False)
    assert told.returncode == 0, told.stderr.decode()
    return told.stdout.decode().strip()
