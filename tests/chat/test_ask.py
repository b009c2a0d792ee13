"""POST /api/chats/{id}/messages"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from django.conf import LazySettings
from django.test import Client
from pytest_django import DjangoCaptureOnCommitCallbacks
from redis import Redis

from chat import context
from chat.models import Chat, Message, Role, Run, Status, User
from inference.tokens import Tokenizer, Turn
from scheduler.models import Model, Tier
from scheduler.room import queue_name, room_key
from tests.acts import add_message, bearing, code_of

if TYPE_CHECKING:
    from django.test.client import _MonkeyPatchedWSGIResponse as Answer

NewRun = Callable[..., Run]
Ask = Callable[..., "Answer"]


@pytest.fixture
def ask(as_alice: Client, chat: Chat, model: Model) -> Ask:
    def post(content: Any = "What is the capital of France?", by: Client = as_alice, **more: Any) -> Answer:
        return by.post(f"/api/chats/{chat.pk}/messages", {"content": content, **more}, content_type="application/json")

    return post


def test_a_question_is_stored_with_a_queued_run(ask: Ask, chat: Chat, model: Model, alice: User) -> None:
    answer = ask("What is the capital of France?")

    assert answer.status_code == 202
    run, message = Run.objects.get(), Message.objects.get()
    assert answer.json() == {
        "run_id": str(run.pk),
        "message_id": str(message.pk),
        "stream": f"/api/runs/{run.pk}/stream",
    }
    assert (message.chat, message.role, message.position) == (chat, Role.USER, 1)
    assert message.content == "What is the capital of France?"
    assert message.token_count == Tokenizer.load(model.source).count(message.content)
    assert (run.chat, run.prompt, run.status, run.model, run.tier) == (chat, message, Status.QUEUED, model, alice.tier)


def test_its_input_tokens_are_those_of_the_models_template(ask: Ask, model: Model) -> None:
    ask("What is the capital of France?")

    ids = Tokenizer.load(model.source).encode_chat([Turn("user", "What is the capital of France?")])
    assert Run.objects.get().input_tokens == len(ids)


def test_a_second_turns_input_contains_the_first(ask: Ask, new_run: NewRun) -> None:
    first = new_run(Status.DONE, text="Hello, who are you?", answer="I am a model.")

    ask("And what can you do?")

    second = Run.objects.exclude(pk=first.pk).get()
    assert second.prompt.position == 3
    alone = Tokenizer.load(second.model.source).encode_chat([Turn("user", "And what can you do?")])
    assert second.input_tokens > len(alone) + first.input_tokens


def test_the_chat_moves_to_the_front(ask: Ask, chat: Chat, alice: User) -> None:
    newer = Chat.objects.create(owner=alice)

    ask()

    assert [row.pk for row in Chat.objects.order_by("-updated_at")] == [chat.pk, newer.pk]


def test_content_is_stored_as_it_came(ask: Ask) -> None:
    content = "  سلام\n👩‍👩‍👧 e\u0301 \u200f<|im_end|>\t "

    assert ask(content).status_code == 202

    assert Message.objects.get().content == content


def test_the_run_is_sent_to_its_tiers_queue_after_the_commit(
    ask: Ask, model: Model, broker: Redis, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    with django_capture_on_commit_callbacks() as after_commit:
        ask()
    queue = queue_name(model.slug, "free")
    assert broker.llen(queue) == 0

    for callback in after_commit:
        callback()

    run = Run.objects.get()
    assert run.released_at
    sent = json.loads(broker.lindex(queue, 0) or "")
    assert sent["headers"]["task"] == "chat.tasks.generate"
    assert sent["headers"]["argsrepr"] == repr([str(run.pk)])


def test_with_the_queue_full_the_run_waits_in_its_room(
    ask: Ask,
    model: Model,
    broker: Redis,
    settings: LazySettings,
    django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks,
) -> None:
    settings.DISPATCH_LOOKAHEAD = 0

    with django_capture_on_commit_callbacks(execute=True):
        ask()

    run = Run.objects.get()
    assert run.released_at is None
    assert broker.zrange(room_key(model.slug, "free"), 0, -1) == [str(run.pk).encode()]


def test_with_the_broker_down_the_run_is_stored_and_stays_queued(
    ask: Ask,
    settings: LazySettings,
    django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks,
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings.BROKER_URL = "redis://127.0.0.1:1/0"

    with django_capture_on_commit_callbacks(execute=True):
        answer = ask("A secret")

    assert answer.status_code == 202
    run = Run.objects.get()
    assert (run.status, run.released_at) == (Status.QUEUED, None)
    assert f"dispatch.failed run={run.pk}" in caplog.text
    assert "A secret" not in caplog.text


@pytest.mark.timeout(30)
def test_a_broker_that_takes_connections_and_never_answers_holds_nobody_up(
    ask: Ask, settings: LazySettings, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings.BROKER_URL = f"redis://127.0.0.1:{silent.getsockname()[1]}/0"

        with django_capture_on_commit_callbacks(execute=True):
            assert ask().status_code == 202

    assert Run.objects.get().released_at is None


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, "content_missing"),
        ({"content": None}, "content_missing"),
        ({"content": 7}, "content_not_text"),
        ({"content": ["Hi"]}, "content_not_text"),
        ({"content": ""}, "content_blank"),
        ({"content": " \n\t\u3000"}, "content_blank"),
        ({"content": "a\0b"}, "content_has_nul"),
        ({"content": "half \ud800 a pair"}, "content_not_unicode"),
        ({"content": "Hi", "model": 7}, "model_not_text"),
        ({"content": "Hi", "model": "nowhere"}, "model_unknown"),
        ({"content": "Hi", "model": ""}, "model_unknown"),
        ({"content": "Hi", "model": "a\0b"}, "model_unknown"),
        ({"content": "Hi", "model": "\ud800"}, "model_unknown"),
        ({"content": "Hi", "max_output_tokens": 0}, "max_output_tokens_invalid"),
        ({"content": "Hi", "max_output_tokens": -1}, "max_output_tokens_invalid"),
        ({"content": "Hi", "max_output_tokens": 1.5}, "max_output_tokens_invalid"),
        ({"content": "Hi", "max_output_tokens": "10"}, "max_output_tokens_invalid"),
        ({"content": "Hi", "max_output_tokens": True}, "max_output_tokens_invalid"),
        (["content"], "body_not_object"),
        ("content", "body_not_object"),
    ],
)
def test_what_cannot_be_asked_is_refused_by_name(
    as_alice: Client, chat: Chat, model: Model, body: Any, code: str
) -> None:
    answer = as_alice.post(f"/api/chats/{chat.pk}/messages", json.dumps(body), content_type="application/json")

    assert (answer.status_code, code_of(answer)) == (400, code)
    assert not Message.objects.exists()


@pytest.mark.parametrize(
    "body", [b"", b"{", b'{"content": NaN}', b"\xff\xfe", b"[" * 200_000, b'{"content": ' + b"9" * 10_000 + b"}"]
)
def test_a_body_that_is_no_json_is_refused(as_alice: Client, chat: Chat, body: bytes) -> None:
    answer = as_alice.generic("POST", f"/api/chats/{chat.pk}/messages", body, content_type="application/json")

    assert answer.status_code == 400
    assert code_of(answer) in {"body_not_json", "content_missing"}


def test_a_body_of_another_kind_is_refused(as_alice: Client, chat: Chat) -> None:
    answer = as_alice.post(f"/api/chats/{chat.pk}/messages", {"content": "Hi"})

    assert (answer.status_code, code_of(answer)) == (415, "media_type_unsupported")


def test_content_is_measured_in_bytes_before_it_is_tokenised(ask: Ask, settings: LazySettings, model: Model) -> None:
    settings.MAX_CONTENT_BYTES = 20
    Model.objects.update(source="/nowhere")  # tokenising would fail

    answer = ask("سلام سلام سلام")

    assert (answer.status_code, code_of(answer)) == (400, "content_too_large")
    assert (answer.json()["size_bytes"], answer.json()["max_bytes"]) == (26, 20)


def test_content_of_exactly_the_most_bytes_is_taken_however_json_spells_it(
    ask: Ask, settings: LazySettings, model: Model
) -> None:
    settings.MAX_CONTENT_BYTES = 600

    assert ask("\x01" * 600).status_code == 202


def test_a_body_longer_than_any_valid_one_is_refused_unread(
    as_alice: Client, chat: Chat, settings: LazySettings
) -> None:
    body = b'{"content": "Hi", "x": "' + b"x" * settings.DATA_UPLOAD_MAX_MEMORY_SIZE + b'"}'

    answer = as_alice.generic("POST", f"/api/chats/{chat.pk}/messages", body, content_type="application/json")

    assert (answer.status_code, code_of(answer)) == (413, "body_too_large")


def test_a_prompt_longer_than_the_window_is_refused_with_the_numbers(ask: Ask, model: Model) -> None:
    Model.objects.update(context_window=40)

    answer = ask("word " * 100)

    assert (answer.status_code, code_of(answer)) == (400, "prompt_too_long")
    assert answer.json()["context_window"] == 40
    assert answer.json()["input_tokens"] > 100


def test_a_prompt_may_fill_the_window_up_to_one_token(ask: Ask, model: Model) -> None:
    ids = Tokenizer.load(model.source).encode_chat([Turn("user", "Hi")])
    Model.objects.update(context_window=len(ids))
    assert code_of(ask("Hi")) == "prompt_too_long"

    Model.objects.update(context_window=len(ids) + 1)
    assert ask("Hi").status_code == 202

    assert Run.objects.get().max_output_tokens == 1


@pytest.mark.parametrize(
    ("caps", "wanted", "granted"),
    [((50, 70), None, 50), ((70, 50), None, 50), ((50, 70), 10, 10), ((50, 70), 60, 50), ((50, 70), 10**30, 50)],
)
def test_the_output_cap_is_the_smallest_of_tier_model_and_wish(
    ask: Ask, caps: tuple[int, int], wanted: int | None, granted: int
) -> None:
    Tier.objects.update(max_output_tokens=caps[0])
    Model.objects.update(max_output_tokens=caps[1])

    ask(max_output_tokens=wanted)

    assert Run.objects.get().max_output_tokens == granted


def test_a_model_that_the_tier_may_not_use_is_unknown(ask: Ask, model: Model, pro: Tier) -> None:
    dear = Model.objects.create(slug="dear", name="Dear", source=model.source, context_window=2048)
    dear.tiers.set([pro])

    answer = ask(model="dear")

    assert (answer.status_code, code_of(answer)) == (400, "model_unknown")
    User.objects.update(tier=pro)
    assert ask(model="dear").status_code == 202
    assert Run.objects.get().tier == pro


def test_a_model_that_is_switched_off_is_unknown(ask: Ask, model: Model) -> None:
    Model.objects.update(is_active=False)

    assert code_of(ask()) == "model_unknown"
    assert code_of(ask(model=model.slug)) == "model_unknown"


def test_a_model_whose_files_are_broken_is_unusable(ask: Ask, model: Model) -> None:
    Model.objects.update(source="/nowhere")

    answer = ask()

    assert (answer.status_code, code_of(answer)) == (503, "model_unusable")
    assert "nowhere" not in answer.content.decode()


@pytest.mark.parametrize("status", [Status.QUEUED, Status.STREAMING])
def test_a_chat_that_is_being_answered_is_busy(ask: Ask, new_run: NewRun, status: Status) -> None:
    live = new_run(status)

    answer = ask()

    assert (answer.status_code, code_of(answer)) == (409, "chat_busy")
    assert answer.json()["run_id"] == str(live.pk)
    assert Message.objects.count() == 1


@pytest.mark.parametrize("status", [Status.DONE, Status.CANCELLED, Status.FAILED])
def test_a_chat_whose_run_has_ended_takes_the_next_question(ask: Ask, new_run: NewRun, status: Status) -> None:
    new_run(status)

    assert ask().status_code == 202


def test_as_many_live_runs_as_the_tier_allows_are_too_many(ask: Ask, new_run: NewRun, alice: User, free: Tier) -> None:
    for _ in range(free.concurrency):
        new_run(in_chat=Chat.objects.create(owner=alice))

    answer = ask()

    assert (answer.status_code, code_of(answer)) == (429, "too_many_runs")
    assert int(answer.headers["Retry-After"]) > 0
    assert answer.json()["limit"] == free.concurrency


def test_runs_of_others_and_runs_that_ended_do_not_count(
    ask: Ask, new_run: NewRun, bob: User, alice: User, free: Tier
) -> None:
    for _ in range(free.concurrency):
        new_run(in_chat=Chat.objects.create(owner=bob))
        new_run(Status.DONE, in_chat=Chat.objects.create(owner=alice))

    assert ask().status_code == 202


def test_an_answer_that_lands_while_the_history_is_tokenised_is_counted_in(
    ask: Ask, chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_message(chat, Role.USER, "Hello")
    tokenise = context.for_question
    landed: list[Message] = []

    def slowly(*args: Any) -> context.Prompt:
        prompt = tokenise(*args)
        if not landed:
            landed.append(add_message(chat, Role.ASSISTANT, "Hello yourself"))
        return prompt

    monkeypatch.setattr(context, "for_question", slowly)

    assert ask().status_code == 202

    run = Run.objects.get()
    assert run.prompt.position == 3
    assert run.input_tokens == len(context.for_run(run).ids)


def test_what_somebody_else_owns_is_not_found(ask: Ask, as_bob: Client) -> None:
    answer = ask(by=as_bob)

    assert (answer.status_code, code_of(answer)) == (404, "not_found")
    assert not Message.objects.exists()


@pytest.mark.parametrize("name", [str(uuid4()), "7", "x" * 36, "00000000-0000-0000-0000-00000000000"])
def test_an_unknown_or_malformed_id_is_not_found(as_alice: Client, name: str) -> None:
    answer = as_alice.post(f"/api/chats/{name}/messages", {"content": "Hi"}, content_type="application/json")

    assert (answer.status_code, code_of(answer)) == (404, "not_found")


def test_without_a_credential_nothing_is_asked(ask: Ask, client: Client) -> None:
    answer = ask(by=client)

    assert (answer.status_code, code_of(answer)) == (401, "not_authenticated")


def test_a_key_of_somebody_who_was_shut_out_opens_nothing(ask: Ask, alice: User) -> None:
    client = bearing(alice)
    User.objects.update(is_active=False)

    assert code_of(ask(by=client)) == "not_authenticated"
