"""Every field of chat completions and responses: supported, ignored or refused, as docs/openai.md says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from django.conf import LazySettings
from django.test import Client
from openai.types.chat.completion_create_params import CompletionCreateParamsBase
from openai.types.responses.response_create_params import ResponseCreateParamsBase

from chat.context import for_run
from chat.models import Chat, Run, User
from chat.openai.fields import COMPLETION, RESPONSE, Field, Support
from chat.sampling import sampling_of
from chat.wishes import Wishes
from inference.engine import Sampling
from inference.tokens import Tokenizer
from scheduler.models import Model
from tests.acts import bearing
from tests.conftest import OUTPUT_CAP
from tests.real_model import model_folder

pytestmark = pytest.mark.django_db
DOC = Path(__file__).parents[2] / "docs" / "openai.md"
COMPLETIONS, RESPONSES = "/v1/chat/completions", "/v1/responses"
TABLES: Mapping[str, Sequence[Field]] = {COMPLETIONS: COMPLETION, RESPONSES: RESPONSE}
ODD = {"anything": ["at all"]}

Ask = Callable[..., Any]


@pytest.fixture
def ask(alice: User, model: Model) -> Ask:
    """Sends what a request must have, and more; returns the answer."""
    client: Client = bearing(alice)
    least: Mapping[str, Mapping[str, Any]] = {
        COMPLETIONS: {"messages": [{"role": "user", "content": "Hi"}], "model": model.pk},
        RESPONSES: {"input": "Hi", "model": model.pk},
    }
    return lambda path, **more: client.post(path, {**least[path], **more}, content_type="application/json")


def rows(support: Support) -> list[Any]:
    return [
        pytest.param(path, field, id=f"{path[4:]} {field.name}")
        for path, fields in TABLES.items()
        for field in fields
        if field.support is support
    ]


def prompt_of(run: Run) -> str:
    return Tokenizer.load(model_folder()).decode(for_run(run).ids)


@pytest.mark.parametrize(
    ("path", "known"), [(COMPLETIONS, CompletionCreateParamsBase), (RESPONSES, ResponseCreateParamsBase)]
)
def test_the_tables_have_every_field_that_openais_client_sends(path: str, known: type) -> None:
    assert {*known.__annotations__, "stream"} == {field.name for field in TABLES[path]}


@pytest.mark.parametrize("path", TABLES)
def test_the_document_has_every_row(path: str) -> None:
    lines = DOC.read_text().splitlines()
    for field in TABLES[path]:
        assert f"| `{field.name}` | {field.support} | {field.note} |" in lines


@pytest.mark.parametrize(("path", "field"), rows(Support.REFUSED))
def test_what_is_refused_names_the_field_and_passes_where_it_asks_for_nothing(
    ask: Ask, path: str, field: Field
) -> None:
    answer = ask(path, **{field.name: ODD})

    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["code"]) == (400, field.name, f"{field.name}_unsupported")
    assert (error["type"], answer["x-should-retry"]) == ("invalid_request_error", "false")
    assert not Run.objects.exists()
    for harmless in (None, *field.harmless):
        assert ask(path, **{field.name: harmless}).status_code == 200
        Run.objects.all().delete()


@pytest.mark.parametrize("path", TABLES)
def test_an_operator_may_let_tools_pass_that_nobody_insists_on(ask: Ask, path: str, settings: LazySettings) -> None:
    settings.IGNORE_TOOLS = True
    tools = [{"type": "function", "function": {"name": "look"}}]

    assert ask(path, tools=tools).status_code == 200
    assert ask(path, tools=tools, tool_choice="required").json()["error"]["param"] == "tool_choice"


@pytest.mark.parametrize(("path", "field"), rows(Support.IGNORED))
def test_what_is_ignored_changes_nothing(ask: Ask, path: str, field: Field) -> None:
    assert ask(path, **{field.name: ODD}).status_code == 200
    [run] = Run.objects.all()
    assert run.wishes == {}


@pytest.mark.parametrize("path", TABLES)
def test_what_is_not_known_is_ignored(ask: Ask, path: str) -> None:
    assert ask(path, nonsense=ODD).status_code == 200


HISTORY = [
    {"role": "system", "content": "Be a fox."},
    {"role": "user", "content": [{"type": "text", "text": "One, "}, {"type": "text", "text": "two?"}]},
    {"role": "assistant", "content": "Three."},
    {"role": "developer", "content": "And brief."},
    {"role": "user", "content": "Four?"},
]
SAMPLING = {"temperature": 0.25, "top_p": 0.5, "seed": 7, "presence_penalty": 1, "frequency_penalty": -0.5}


def messages_are_the_prompt(ask: Ask, path: str, name: str) -> None:
    assert ask(path, **{name: HISTORY}).status_code == 200
    spoken = prompt_of(Run.objects.get())
    places = [spoken.index(text) for text in ("Be a fox.\n\nAnd brief.", "One, two?", "Three.", "Four?")]
    assert places == sorted(places)
    assert len(spoken) == len(spoken.replace("You are a helpful", "")), "the model's own system prompt"


def sampling(ask: Ask, path: str, name: str) -> None:
    assert ask(path, **{name: SAMPLING[name]}).status_code == 200
    assert getattr(sampling_of(Run.objects.get()), name) == SAMPLING[name]
    for bad in ("much", True, 2**64, -(2**64)):
        error = ask(path, **{name: bad}).json()["error"]
        assert (error["code"], error["param"]) == (f"{name}_invalid", name)


def cap(ask: Ask, path: str, name: str) -> None:
    assert ask(path, **{name: 3}).status_code == 200
    assert Run.objects.get().max_output_tokens == 3
    for bad in (0, -1, 1.5, "3"):
        assert ask(path, **{name: bad}).json()["error"]["param"] == name


def a_model(ask: Ask, path: str, name: str) -> None:
    unknown = ask(path, **{name: "gpt-6"})
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "model_not_found")
    assert ask(path, **{name: None}).json()["error"]["param"] == name


def stops(ask: Ask, path: str, name: str) -> None:
    assert ask(path, **{name: "\n"}).status_code == 200
    assert ask(path, **{name: ["a", "b"]}).status_code == 200
    assert [Wishes.of(run).stop for run in Run.objects.order_by("id")] == [("\n",), ("a", "b")]
    for bad in ("", ["a"] * 5, [1], "x" * 257):
        assert ask(path, **{name: bad}).json()["error"]["param"] == name


def stream(ask: Ask, path: str, name: str) -> None:
    assert ask(path, **{name: True})["Content-Type"].startswith("text/event-stream")
    assert ask(path, **{name: False})["Content-Type"] == "application/json"
    assert ask(path, **{name: "yes"}).json()["error"]["param"] == name


def stream_options(ask: Ask, path: str, name: str) -> None:
    assert ask(path, stream=True, **{name: {"include_usage": True, "include_obfuscation": False}}).status_code == 200
    assert ask(path, **{name: "usage"}).json()["error"]["param"] == name


def store(ask: Ask, path: str, name: str) -> None:
    for wish in (True, False):
        assert ask(path, **{name: wish}).status_code == 200
    assert [chat.is_kept for chat in Chat.objects.order_by("id")] == [True, False]
    assert Chat.objects.visible_to(User.objects.get(username="alice")).count() == 1


def instructions(ask: Ask, path: str, name: str) -> None:
    assert ask(path, **{name: "Speak Persian."}, input=HISTORY).status_code == 200
    assert "Speak Persian.\n\nBe a fox.\n\nAnd brief." in prompt_of(Run.objects.get())


def background(ask: Ask, path: str, name: str) -> None:
    response = ask(path, **{name: True}).json()
    assert (response["status"], response["background"], response["output"]) == ("queued", True, [])
    assert ask(path, **{name: True}, store=False).json()["error"]["param"] == "store"


def previous_response_id(ask: Ask, path: str, name: str) -> None:
    for unknown in ("resp_" + "0" * 32, "resp_x", "x"):
        answer = ask(path, **{name: unknown})
        assert (answer.status_code, answer.json()["error"]["param"]) == (404, name)


SUPPORTED: Mapping[str, Callable[[Ask, str, str], None]] = {
    **{"messages": messages_are_the_prompt, "input": messages_are_the_prompt, "model": a_model},
    **{"max_tokens": cap, "max_completion_tokens": cap, "max_output_tokens": cap},
    **dict.fromkeys(SAMPLING, sampling),
    **{"stop": stops, "stream": stream, "stream_options": stream_options, "store": store},
    **{"instructions": instructions, "background": background, "previous_response_id": previous_response_id},
}


@pytest.mark.parametrize(("path", "field"), rows(Support.SUPPORTED))
def test_what_is_supported_does_what_it_says(ask: Ask, path: str, field: Field) -> None:
    SUPPORTED[field.name](ask, path, field.name)


def test_without_wishes_the_models_own_settings_hold(ask: Ask, model: Model) -> None:
    assert ask(COMPLETIONS).status_code == 200
    run = Run.objects.get()
    assert sampling_of(run) == Sampling(temperature=float(model.temperature), top_p=float(model.top_p))
    assert run.max_output_tokens == OUTPUT_CAP


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        (None, "messages"),
        ([], "messages"),
        ("Hi", "messages"),
        (["Hi"], "messages[0]"),
        ([{"role": "user"}], "messages[0].content"),
        ([{"role": "user", "content": None}], "messages[0].content"),
        ([{"role": "user", "content": 7}], "messages[0].content"),
        ([{"role": "user", "content": []}], "messages[0].content"),
        ([{"role": "cat", "content": "Hi"}], "messages[0].role"),
        ([{"role": ["user"], "content": "Hi"}], "messages[0].role"),
        ([{"role": "tool", "content": "Hi", "tool_call_id": "x"}], "messages[0].role"),
        ([{"role": "system", "content": "Alone."}], "messages"),
        (
            [
                {"role": "user", "content": "Hi"},
                {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]},
            ],
            "messages[1].content[0].type",
        ),
        ([{"role": "user", "content": [{"type": "text", "text": 7}]}], "messages[0].content[0].text"),
        ([{"role": "user", "content": ["Hi"]}], "messages[0].content[0].type"),
        ([{"role": "assistant", "content": "Hi", "tool_calls": [{"id": "x"}]}], "messages[0].tool_calls"),
        ([{"role": "user", "content": "a\0b"}], "messages"),
        ([{"role": "user", "content": "\ud800"}], "messages"),
        ([{"role": "user", "content": "x" * 70_000}], "messages"),
        ([{"role": "user", "content": "x"}] * 2001, "messages"),
        ([{"role": "user", "content": "word " * 3000}], "messages"),
    ],
)
def test_messages_that_cannot_be_answered_are_refused_by_name(ask: Ask, messages: Any, param: str) -> None:
    answer = ask(COMPLETIONS, messages=messages)

    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
    assert not Run.objects.exists()
    assert not Chat.objects.exists()
