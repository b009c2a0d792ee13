"""Responses that go on from others: in the same chat, or in a copy of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from django.test import Client

from chat import context
from chat.context import for_run
from chat.models import Chat, Run, Status, User
from chat.openai.names import run_of
from inference.tokens import Tokenizer
from scheduler.models import Model
from tests.acts import bearing, bring
from tests.real_model import model_folder

pytestmark = pytest.mark.django_db(transaction=True)
Respond = Callable[..., Any]


@pytest.fixture
def respond(alice: User, model: Model) -> Respond:
    client: Client = bearing(alice)

    def post(text: Any, **more: Any) -> Any:
        body = {"model": model.pk, "input": text, "background": True, **more}
        answer = client.post("/v1/responses", body, content_type="application/json")
        return None if answer.streaming else answer.json()

    return post


def run_behind(response: Any) -> Run:
    run_id = run_of(response["id"])
    assert run_id
    return Run.objects.select_related("chat", "prompt", "model").get(pk=run_id)


def answered(response: Any, answer: str) -> Any:
    bring(run_behind(response), Status.DONE, answer)
    return response


def prompt_of(response: Any) -> str:
    return Tokenizer.load(model_folder()).decode(for_run(run_behind(response)).ids)


def test_it_goes_on_in_the_same_chat_with_all_that_was_said(respond: Respond) -> None:
    first = answered(respond("One?"), "One.")
    second = answered(respond("Two?", previous_response_id=first["id"]), "Two.")
    third = respond("Three?", previous_response_id=second["id"])

    assert Chat.objects.count() == 1
    spoken = prompt_of(third)
    places = [spoken.index(text) for text in ("One?", "One.", "Two?", "Two.", "Three?")]
    assert places == sorted(places)
    assert third["previous_response_id"] == second["id"]


def test_instructions_are_of_one_response_and_system_messages_of_all_that_follow(respond: Respond) -> None:
    items = [{"role": "system", "content": "Be a fox."}, {"role": "user", "content": "One?"}]
    first = answered(respond(items, instructions="Be brief."), "One.")
    second = answered(respond("Two?", previous_response_id=first["id"], instructions="Be long."), "Two.")
    third = respond("Three?", previous_response_id=second["id"])

    assert "Be brief.\n\nBe a fox." in prompt_of(first)
    assert "Be long.\n\nBe a fox." in prompt_of(second)
    assert "Be brief." not in prompt_of(second)
    assert "Be a fox." in prompt_of(third)
    assert "Be long." not in prompt_of(third)


def test_twice_from_the_same_one_are_two_conversations(respond: Respond) -> None:
    first = answered(respond("One?"), "One.")
    one_way = answered(respond("This way?", previous_response_id=first["id"]), "This.")
    other_way = answered(respond("That way?", previous_response_id=first["id"]), "That.")
    further = respond("Further?", previous_response_id=one_way["id"])

    assert Chat.objects.count() == 2
    assert "This way?" not in prompt_of(other_way)
    assert "One." in prompt_of(other_way)
    assert "That way?" not in prompt_of(further)
    assert run_behind(further).chat_id == run_behind(first).chat_id


def test_one_that_is_not_kept_is_not_seen_in_the_chat_that_it_goes_on_from(respond: Respond) -> None:
    first = answered(respond("One?"), "One.")
    respond("A secret?", previous_response_id=first["id"], store=False, background=False)

    run = Run.objects.order_by("-id").select_related("chat").first()
    assert run
    assert not run.chat.is_kept
    assert run_behind(first).chat.messages.count() == 2
    further = respond("Two?", previous_response_id=first["id"])
    assert run_behind(further).chat_id == run_behind(first).chat_id


def test_one_that_was_not_kept_cannot_be_gone_on_from(respond: Respond, alice: User) -> None:
    first = answered(respond("One?"), "One.")
    Chat.objects.update(is_kept=False)

    error = respond("Two?", previous_response_id=first["id"])["error"]

    assert (error["code"], error["param"]) == ("previous_response_not_found", "previous_response_id")


def test_one_that_is_not_over_cannot_be_gone_on_from_yet(respond: Respond) -> None:
    first = respond("One?")
    assert respond("Two?", previous_response_id=first["id"])["error"]["code"] == "chat_busy"


def test_without_a_model_it_is_the_one_before(respond: Respond, model: Model) -> None:
    first = answered(respond("One?"), "One.")
    assert respond("Two?", previous_response_id=first["id"], model=None)["model"] == model.pk


def test_another_users_response_cannot_be_gone_on_from(respond: Respond, bob: User, model: Model) -> None:
    first = answered(respond("One?"), "One.")
    body = {"model": model.pk, "input": "Tell me.", "previous_response_id": first["id"]}

    answer = bearing(bob).post("/v1/responses", body, content_type="application/json")

    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "previous_response_not_found")


def test_what_is_asked_on_the_page_is_gone_on_from_too(respond: Respond, new_run: Callable[..., Run]) -> None:
    asked = new_run(Status.DONE)

    further = respond("And?", previous_response_id=f"resp_{asked.pk.hex}")

    assert run_behind(further).chat_id == asked.chat_id


def test_two_that_go_on_at_the_same_time_are_two_conversations(
    respond: Respond, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = answered(respond("One?"), "One.")
    others: list[Any] = []
    tokenise = context.laid_out

    def overtaken(*arguments: Any) -> Any:
        if not others:
            others.append(None)
            others[0] = respond("The other way?", previous_response_id=first["id"])
        return tokenise(*arguments)

    monkeypatch.setattr(context, "laid_out", overtaken)
    mine = respond("My way?", previous_response_id=first["id"])
    monkeypatch.undo()

    assert run_behind(others[0]).chat_id == run_behind(first).chat_id
    assert run_behind(mine).chat_id != run_behind(first).chat_id
    assert "The other way?" not in prompt_of(mine)
    assert "One." in prompt_of(mine)


def test_what_the_assistant_said_first_stays_in_the_prompts(respond: Respond) -> None:
    items = [{"role": "assistant", "content": "Welcome."}, {"role": "user", "content": "One?"}]
    first = answered(respond(items), "One.")

    second = respond("Two?", previous_response_id=first["id"])

    assert prompt_of(second).index("Welcome.") < prompt_of(second).index("One?")
    assert run_behind(second).left_out == 0


def test_a_chat_of_the_assistant_alone_goes_on_and_can_be_tried_again(respond: Respond, alice: User) -> None:
    monologue = [{"role": "assistant", "content": "I think."}]
    first = answered(respond(monologue), "So I am.")
    second = answered(respond(monologue, previous_response_id=first["id"]), "Still.")

    again = bearing(alice).post(f"/api/runs/{run_behind(second).pk}/retry")

    assert again.status_code == 202
    assert prompt_of(second).count("I think.") == 2


def test_system_messages_hold_on_the_page_as_well(respond: Respond, alice: User) -> None:
    items = [{"role": "system", "content": "Be a fox."}, {"role": "user", "content": "One?"}]
    first = answered(respond(items, instructions="Be brief."), "One.")
    chat = run_behind(first).chat

    asked = (
        bearing(alice)
        .post(f"/api/chats/{chat.pk}/messages", {"content": "Two?"}, content_type="application/json")
        .json()
    )

    by_page = {"id": f"resp_{UUID(asked['run_id']).hex}"}
    assert "Be a fox." in prompt_of(by_page)
    assert "Be brief." not in prompt_of(by_page)
    further = respond("Three?", previous_response_id=answered(by_page, "Two.")["id"])
    assert "Be a fox." in prompt_of(further)


def test_a_copy_of_a_long_chat_leaves_its_oldest_messages_out(respond: Respond, model: Model) -> None:
    Model.objects.filter(pk=model.pk).update(context_window=512)
    last = answered(respond("The first question?"), "The first answer.")
    for number in range(6):
        last = answered(respond(f"{number}. {'word ' * 60}", previous_response_id=last["id"]), "Yes.")

    passing = respond("And?", previous_response_id=last["id"], store=False, background=False)

    assert passing is None
    run = Run.objects.select_related("chat", "prompt", "model").order_by("-id")[0]
    assert run.left_out > 0
    assert run.input_tokens < 512


@pytest.mark.parametrize("stop", ["\0", "\ud83d"])
def test_a_stop_string_that_cannot_be_stored_is_refused(alice: User, model: Model, stop: str) -> None:
    body = {"model": model.pk, "messages": [{"role": "user", "content": "Hi"}], "stop": stop}
    answer = bearing(alice).post("/v1/chat/completions", body, content_type="application/json")
    assert answer.status_code == 400
    assert not Run.objects.exists()
