"""Refusals and failures, as OpenAI's own client reads them: it neither hammers nor gives up wrongly."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest
from django.test import Client
from openai import OpenAI

from chat import problems
from chat.models import ApiKey, Scope, User
from chat.openai import errors
from chat.problems import Problem
from scheduler.errors import QueueFull, TooManyRuns
from scheduler.models import Model, Tier
from tests.acts import bearing
from tests.browser.visitor import scripted
from tests.stack.stack import MODEL

COMPLETIONS = "/v1/chat/completions"


def asking(text: str, **wishes: Any) -> Any:
    return [{"role": "user", "content": scripted(text, **wishes)}]


@pytest.fixture
def post(alice: User, model: Model) -> Callable[..., Any]:
    client: Client = bearing(alice)
    client.raise_request_exception = False

    def send(**more: Any) -> Any:
        body = {"model": model.pk, "messages": [{"role": "user", "content": "Hi"}], **more}
        return client.post(COMPLETIONS, body, content_type="application/json")

    return send


def told(answer: Any) -> tuple[int, str, str, str]:
    error = answer.json()["error"]
    return answer.status_code, error["type"], error["code"], error["reason"]


@pytest.mark.django_db
def test_nobody_is_let_in_without_a_key(signed_in: Client) -> None:
    for who in (Client(), signed_in):
        answer = who.post(COMPLETIONS, {}, content_type="application/json")
        assert told(answer) == (401, "authentication_error", "invalid_api_key", "not_authenticated")
        assert answer["WWW-Authenticate"].startswith("Bearer")


@pytest.mark.django_db
def test_a_key_that_only_reads_lists_models_and_asks_nothing(alice: User, model: Model) -> None:
    _, secret = ApiKey.objects.issue(alice, "reader", scopes=[Scope.READ])
    reader = Client(headers={"Authorization": f"Bearer {secret}"})

    assert reader.get("/v1/models").status_code == 200
    answer = reader.post(COMPLETIONS, {"model": model.pk}, content_type="application/json")
    assert told(answer) == (403, "permission_error", "scope_missing", "scope_missing")


@pytest.mark.django_db
@pytest.mark.parametrize("body", ["", "{", "[]", '"Hi"', "null", "[" * 5000])
def test_what_is_no_object_is_told_so(alice: User, body: str) -> None:
    answer = bearing(alice).post(COMPLETIONS, body, content_type="application/json")
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")


@pytest.mark.django_db
def test_another_address_or_method_is_told_so(alice: User) -> None:
    client = bearing(alice)
    assert told(client.get("/v1/embeddings"))[0:2] == (404, "not_found_error")
    wrong = client.get(COMPLETIONS)
    assert (wrong.status_code, wrong["Allow"]) == (405, "POST, OPTIONS")
    assert wrong.json()["error"]["code"] == "method_not_allowed"


@pytest.mark.django_db
def test_a_bug_is_told_without_its_inside(post: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chat.programs.ask", lambda *_: 1 // 0)
    answer = post()
    assert told(answer) == (500, "server_error", "internal_error", "internal_error")
    assert "division" not in answer.content.decode()


@pytest.mark.django_db
def test_too_many_at_once_and_too_little_budget(post: Callable[..., Any], alice: User) -> None:
    Tier.objects.filter(pk=alice.tier_id).update(concurrency=1)
    assert post().status_code == 200

    answer = post()

    assert told(answer) == (429, "rate_limit_error", "rate_limit_exceeded", "too_many_runs")
    assert (answer["Retry-After"], answer["x-should-retry"]) == ("5", "true")
    Tier.objects.filter(pk=alice.tier_id).update(concurrency=9, budget_tokens=140, refill_tokens_per_hour=1)
    answers = [post() for _ in range(4)]
    assert told(answers[-1]) == (429, "rate_limit_error", "insufficient_quota", "budget_exhausted")
    assert int(answers[-1]["Retry-After"]) > errors.LONGEST_WAIT_S
    assert answers[-1]["x-should-retry"] == "false"


@pytest.mark.django_db
def test_what_is_left_is_in_every_answers_headers(post: Callable[..., Any], alice: User) -> None:
    limits = alice.limits
    first, second = post(), post(n=2)

    assert first["x-ratelimit-limit-tokens"] == str(limits.budget_tokens)
    assert 0 < int(first["x-ratelimit-remaining-tokens"]) < limits.budget_tokens
    left = [int(answer["x-ratelimit-remaining-requests"]) for answer in (first, second)]
    assert left[0] == left[1] + 1
    assert all(first[f"x-ratelimit-reset-{unit}"].endswith("s") for unit in ("requests", "tokens"))


@pytest.mark.parametrize(
    ("problem", "is_worth_it"),
    [
        (problems.Internal(), "true"),
        (problems.DatabaseUnavailable(), "true"),
        (problems.QueueFull(QueueFull(60)), "true"),
        (problems.QueueFull(QueueFull(61)), "false"),
        (problems.TooManyRuns(TooManyRuns(2)), "true"),
        (problems.ChatBusy(), "false"),
        (problems.NotFound(), "false"),
        (problems.Invalid(), "false"),
    ],
)
def test_whether_another_try_is_worth_it(problem: Problem, is_worth_it: str) -> None:
    assert errors.response(COMPLETIONS, problem)["x-should-retry"] == is_worth_it


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_fails_in_the_middle_raises(client: OpenAI, stream: bool) -> None:
    failing = asking("Half of it", failure="generation_failed", fail_after_tokens=3)
    with pytest.raises(openai.APIError) as error:
        list(client.chat.completions.create(model=MODEL, messages=failing, stream=stream))
    assert error.value.code == "generation_failed"


def test_a_prompt_that_the_engine_refuses_is_not_sent_again(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as error:
        client.chat.completions.create(model=MODEL, messages=asking("?", failure="prompt_rejected"))
    assert error.value.response.headers["x-should-retry"] == "false"


def test_a_response_that_fails_says_so_in_the_object(client: OpenAI) -> None:
    failing = scripted("Half", failure="generation_failed", fail_after_tokens=2)

    response = client.responses.create(model=MODEL, input=failing)
    *_, last = client.responses.create(model=MODEL, input=failing, stream=True)

    assert (response.status, response.output_text) == ("failed", "Ha")
    assert response.error
    assert last.type == "response.failed"


def test_an_answer_that_is_cut_at_its_cap(client: OpenAI) -> None:
    completion = client.chat.completions.create(model=MODEL, messages=asking("Too long"), max_completion_tokens=3)
    response = client.responses.create(model=MODEL, input=scripted("Too long"), max_output_tokens=3)
    *_, last = client.responses.create(model=MODEL, input=scripted("Too long"), max_output_tokens=3, stream=True)

    assert (completion.choices[0].message.content, completion.choices[0].finish_reason) == ("Too", "length")
    assert (response.status, response.output_text) == ("incomplete", "Too")
    assert response.incomplete_details
    assert (response.incomplete_details.reason, last.type) == ("max_output_tokens", "response.incomplete")


def test_a_client_that_waits_is_told_so_in_comments(client: OpenAI, idle_model: str) -> None:
    with client.chat.completions.with_streaming_response.create(
        model=idle_model, messages=asking("?"), stream=True
    ) as answer:
        lines: Iterator[str] = answer.iter_lines()
        first = next(line for line in lines if line)
    assert first.startswith(": queued position=")
