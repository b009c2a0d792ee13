"""POST /api/runs/{id}/retry"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from django.test import Client
from pytest_django import DjangoCaptureOnCommitCallbacks
from redis import Redis

from chat import cancelling, context, services
from chat.finishing import finish_run
from chat.models import TERMINAL, Chat, Message, Outcome, Role, Run, Status, User
from inference.tokens import Tokenizer, Turn
from scheduler.models import Model, Tier
from tests.acts import bring, code_of, in_queue
from tests.chat.generating import A_MINUTE

if TYPE_CHECKING:
    from django.test.client import _MonkeyPatchedWSGIResponse as Answer

NewRun = Callable[..., Run]
Retry = Callable[..., "Answer"]


@pytest.fixture
def retry(as_alice: Client) -> Retry:
    return lambda run, by=as_alice: by.post(f"/api/runs/{run.pk}/retry")


def finish(run: Run, text: str, status: Status = Status.DONE) -> None:
    """As its worker would."""
    claim = Run.objects.claim(run.pk, "worker", A_MINUTE)
    assert finish_run(Run.objects.claimed(claim), claim.attempt, Outcome(status), text, uuid4())


def shown(client: Client, chat: Chat) -> list[tuple[str, str]]:
    """What the chat's page shows: each message's text, with its run's status."""
    return [(message["content"], message["run"]["status"]) for message in listed(client, chat)]


def listed(client: Client, chat: Chat) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = client.get(f"/api/chats/{chat.pk}/messages").json()["results"]
    return results


@pytest.mark.parametrize("status", TERMINAL, ids=lambda status: status.value)
def test_a_retry_is_another_run_of_the_same_question(
    retry: Retry,
    new_run: NewRun,
    status: Status,
    broker: Redis,
    django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks,
) -> None:
    first = new_run(status)

    with django_capture_on_commit_callbacks(execute=True):
        answer = retry(first)

    assert answer.status_code == 202
    second = Run.objects.exclude(pk=first.pk).get()
    assert answer.json() == {
        "run_id": str(second.pk),
        "message_id": str(first.prompt_id),
        "stream": f"/api/runs/{second.pk}/stream",
    }
    assert (second.status, second.prompt, second.model) == (Status.QUEUED, first.prompt, first.model)
    assert Message.objects.filter(role=Role.USER).count() == 1
    assert in_queue(broker, second) == [second.pk]


def test_it_is_prompted_as_the_first_was(retry: Retry, alice: User, chat: Chat, new_run: NewRun, model: Model) -> None:
    new_run(Status.DONE, text="Before", answer="Indeed")
    first = services.ask(alice, chat, services.Question("Why?", model))
    prompt = context.for_run(first)
    finish(first, "Because.")

    retry(first)

    second = Run.objects.live().get()
    assert context.for_run(second) == prompt
    assert (second.input_tokens, second.max_output_tokens) == (first.input_tokens, first.max_output_tokens)


def test_the_old_answer_stays_until_the_new_one_takes_its_place(
    as_alice: Client, retry: Retry, chat: Chat, new_run: NewRun
) -> None:
    retry(new_run(Status.DONE, text="Why?", answer="Old"))
    assert shown(as_alice, chat) == [("Why?", "queued"), ("Old", "done")]

    finish(Run.objects.live().get(), "New")

    assert shown(as_alice, chat) == [("Why?", "done"), ("New", "done")]
    [old, new] = Message.objects.filter(role=Role.ASSISTANT).order_by("id")
    assert (old.position, old.content) == (new.position, "Old")
    assert (old.replaced_at is not None, new.replaced_at) == (True, None)


@pytest.mark.parametrize("status", [Status.FAILED, Status.CANCELLED], ids=lambda status: status.value)
def test_a_retry_that_writes_nothing_leaves_the_old_answer(
    as_alice: Client, retry: Retry, chat: Chat, new_run: NewRun, status: Status
) -> None:
    retry(new_run(Status.DONE, text="Why?", answer="Old"))

    finish(Run.objects.live().get(), "", status)

    assert shown(as_alice, chat) == [("Why?", status.value), ("Old", "done")]


def test_a_retry_that_is_cancelled_in_mid_answer_replaces_it(
    as_alice: Client, retry: Retry, chat: Chat, new_run: NewRun
) -> None:
    retry(new_run(Status.DONE, text="Why?", answer="Old"))

    finish(Run.objects.live().get(), "Half of it", Status.CANCELLED)

    assert shown(as_alice, chat) == [("Why?", "cancelled"), ("Half of it", "cancelled")]


def test_any_number_of_retries_leave_one_answer(as_alice: Client, retry: Retry, chat: Chat, new_run: NewRun) -> None:
    latest = new_run(Status.DONE, text="Why?", answer="0")
    for n in range(1, 4):
        retry(latest)
        latest = Run.objects.live().get()
        finish(latest, str(n))

    assert shown(as_alice, chat) == [("Why?", "done"), ("3", "done")]
    assert [message["run"]["id"] for message in listed(as_alice, chat)] == [str(latest.pk)] * 2


def test_what_was_replaced_is_in_no_prompt(
    retry: Retry, alice: User, chat: Chat, new_run: NewRun, model: Model
) -> None:
    retry(new_run(Status.DONE, text="Why?", answer="Old"))
    finish(Run.objects.live().get(), "New")

    run = services.ask(alice, chat, services.Question("Really?", model))

    assert context.for_run(run).ids == Tokenizer.load(model.source).encode_chat(
        [Turn("user", "Why?"), Turn("assistant", "New"), Turn("user", "Really?")]
    )
    assert run.prompt.position == 3


def test_an_earlier_question_is_not_answered_again(retry: Retry, new_run: NewRun) -> None:
    earlier = new_run(Status.DONE)
    new_run(Status.DONE)

    answer = retry(earlier)

    assert (answer.status_code, code_of(answer)) == (409, "not_latest")
    assert not Run.objects.live().exists()


def test_nor_one_whose_follower_has_no_answer(retry: Retry, new_run: NewRun) -> None:
    earlier = new_run(Status.FAILED)
    latest = new_run(Status.FAILED)

    assert code_of(retry(earlier)) == "not_latest"
    assert retry(latest).status_code == 202


def test_a_question_that_comes_while_the_prompt_is_made_is_the_latest(
    retry: Retry, new_run: NewRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    def overtaken(run: Run, model: Model, answer_tokens: int) -> context.Prompt:
        prompt = for_another(run, model, answer_tokens)
        new_run(Status.DONE)
        return prompt

    run, for_another = new_run(Status.DONE), context.for_another
    monkeypatch.setattr(context, "for_another", overtaken)

    assert code_of(retry(run)) == "not_latest"


def test_a_chat_that_is_deleted_while_the_prompt_is_made_is_not_found(
    retry: Retry, new_run: NewRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deleted(run: Run, model: Model, answer_tokens: int) -> context.Prompt:
        run.chat.delete()
        return for_another(run, model, answer_tokens)

    run, for_another = new_run(Status.DONE), context.for_another
    monkeypatch.setattr(context, "for_another", deleted)

    assert code_of(retry(run)) == "not_found"


def test_an_older_try_of_the_latest_question_will_do(retry: Retry, new_run: NewRun) -> None:
    first = new_run(Status.DONE)
    retry(first)
    finish(Run.objects.live().get(), "New")

    assert retry(first).status_code == 202


@pytest.mark.parametrize("status", [Status.QUEUED, Status.STREAMING], ids=lambda status: status.value)
def test_a_run_that_is_live_is_not_repeated(retry: Retry, new_run: NewRun, status: Status) -> None:
    run = new_run(status)

    answer = retry(run)

    assert (answer.status_code, code_of(answer), answer.json()["run_id"]) == (409, "chat_busy", str(run.pk))


def test_it_counts_among_the_users_live_runs(retry: Retry, new_run: NewRun, alice: User, free: Tier) -> None:
    run = new_run(Status.DONE)
    for _ in range(free.concurrency):
        new_run(in_chat=Chat.objects.create(owner=alice))

    assert code_of(retry(run)) == "too_many_runs"


def test_a_model_that_is_no_longer_served_is_unknown(retry: Retry, new_run: NewRun, model: Model) -> None:
    run = new_run(Status.DONE)
    model.tiers.clear()

    answer = retry(run)

    assert (answer.status_code, code_of(answer)) == (400, "model_unknown")


def test_a_window_that_has_shrunk_is_too_small(retry: Retry, new_run: NewRun, model: Model) -> None:
    run = new_run(Status.DONE, text="Many words " * 20)
    model.context_window = 16
    model.save()

    assert code_of(retry(run)) == "prompt_too_long"


def test_the_tiers_present_cap_holds(retry: Retry, new_run: NewRun, free: Tier) -> None:
    run = new_run(Status.DONE)
    Tier.objects.filter(pk=free.pk).update(max_output_tokens=7)

    retry(run)

    assert Run.objects.live().get().max_output_tokens == 7


def test_the_chat_moves_to_the_front(retry: Retry, new_run: NewRun, chat: Chat, alice: User) -> None:
    run = new_run(Status.DONE)
    newer = Chat.objects.create(owner=alice)

    retry(run)

    assert [row.pk for row in Chat.objects.order_by("-updated_at")] == [chat.pk, newer.pk]


def test_questions_without_an_answer_go_together_when_the_last_is_asked_again(
    retry: Retry, alice: User, chat: Chat, model: Model
) -> None:
    cancelling.cancel(services.ask(alice, chat, services.Question("First", model)))
    run = services.ask(alice, chat, services.Question("Second", model))
    bring(run, Status.FAILED)

    retry(run)

    prompt = context.for_run(Run.objects.live().get())
    assert prompt.ids == Tokenizer.load(model.source).encode_chat([Turn("user", "First\n\nSecond")])


def test_somebody_elses_run_is_not_found(retry: Retry, new_run: NewRun, as_bob: Client) -> None:
    run = new_run(Status.DONE)

    assert code_of(retry(run, by=as_bob)) == "not_found"
    assert Run.objects.count() == 1


def test_an_unknown_run_is_not_found(as_alice: Client) -> None:
    assert code_of(as_alice.post(f"/api/runs/{uuid4()}/retry")) == "not_found"
