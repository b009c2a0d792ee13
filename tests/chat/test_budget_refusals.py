"""What who cannot be served for want of tokens or of room is told: why, when to come back, and that exactly."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from math import ceil
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from django.test import Client
from redis import Redis

from chat.models import Chat, Message, Run, User
from scheduler.budgets import bucket_key
from scheduler.models import Model, Tier
from tests.acts import code_of

if TYPE_CHECKING:
    from django.test.client import _MonkeyPatchedWSGIResponse as Answer

Ask = Callable[[], "Answer"]
BUDGET = 200
A_TOKEN_A_SECOND = 3600
A_MILLISECOND = timedelta(milliseconds=1)
UNITS = 3_600_000  # in a bucket, of a token


@pytest.fixture(autouse=True)
def _plan(free: Tier) -> None:
    Tier.objects.update(budget_tokens=BUDGET, refill_tokens_per_hour=A_TOKEN_A_SECOND, concurrency=100)


@pytest.fixture
def ask(as_alice: Client, alice: User, model: Model) -> Ask:
    """Alice asks the same in a new chat."""

    def post() -> Answer:
        chat = Chat.objects.create(owner=alice)
        return as_alice.post(f"/api/chats/{chat.pk}/messages", {"content": "Hi"}, content_type="application/json")

    return post


def now_ms(redis: Redis) -> int:
    seconds, microseconds = redis.time()
    return seconds * 1000 + microseconds // 1000


def put(streams: Redis, user: User, level: int, at_ms: int) -> None:
    """Have the user's bucket hold so much since then."""
    missing = User.objects.get(pk=user.pk).limits.budget_tokens * UNITS - level
    streams.hset(bucket_key(user.pk), mapping={"missing": missing, "at": at_ms})


def test_an_exhausted_budget_is_told_the_very_moment_when_there_is_enough(
    ask: Ask, alice: User, streams: Redis
) -> None:
    assert ask().status_code == 202
    needed = Run.objects.get().input_tokens + Run.objects.get().max_output_tokens
    at_ms = now_ms(streams)
    put(streams, alice, 0, at_ms)

    refused = ask()

    enough_ms = at_ms + needed * 1000
    problem, retry_at = refused.json(), datetime.fromisoformat(refused.json()["retry_at"])
    assert (refused.status_code, code_of(refused), problem["cost_tokens"]) == (429, "budget_exhausted", needed)
    # The application's clock is Redis' here; between its two looks at them the request took a moment.
    assert 0 <= round(retry_at.timestamp() * 1000) - enough_ms <= now_ms(streams) - at_ms
    [told] = re.findall(r"at (.+?) UTC", problem["detail"])
    assert -A_MILLISECOND < datetime.fromisoformat(f"{told}+00:00") - retry_at < timedelta(seconds=1) + A_MILLISECOND
    later_s = ceil((enough_ms - now_ms(streams)) / 1000)
    assert later_s <= int(refused.headers["Retry-After"]) <= needed
    assert (Run.objects.count(), Message.objects.count()) == (1, 1)


def test_a_millisecond_before_that_moment_is_refused_and_the_moment_itself_is_not(
    ask: Ask, alice: User, streams: Redis
) -> None:
    assert ask().status_code == 202
    needed = Run.objects.get().input_tokens + Run.objects.get().max_output_tokens
    never_fills = now_ms(streams) + 10**9  # what a bucket will hold is put there, so that no time passes meanwhile

    put(streams, alice, needed * UNITS - A_TOKEN_A_SECOND, never_fills)
    refused = ask()
    put(streams, alice, needed * UNITS, never_fills)

    assert (code_of(refused), refused.headers["Retry-After"]) == ("budget_exhausted", "1")
    assert ask().status_code == 202


def test_a_prompt_that_no_budget_can_hold_is_a_bad_request_and_says_the_numbers(ask: Ask, as_alice: Client) -> None:
    Tier.objects.update(budget_tokens=5)

    refused = ask()

    problem = refused.json()
    assert (refused.status_code, code_of(refused), problem["budget_tokens"]) == (400, "prompt_exceeds_budget", 5)
    assert problem["input_tokens"] > 5
    assert "Retry-After" not in refused.headers
    assert f"{problem['input_tokens']} tokens" in problem["detail"]
    assert "full budget of 5" in problem["detail"]


def test_a_full_queue_is_nobodys_fault_and_says_when_to_come_back(ask: Ask, model: Model) -> None:
    Model.objects.update(queue_depth=1)
    assert ask().status_code == 202

    refused = ask()

    assert (refused.status_code, code_of(refused)) == (503, "queue_full")
    assert int(refused.headers["Retry-After"]) >= 1
    assert refused.headers["Retry-After"] in refused.json()["detail"]
    assert "RateLimit" in refused.headers
    assert Run.objects.count() == 1


def test_a_retry_is_refused_alike(as_alice: Client, alice: User, streams: Redis, new_run: Callable[..., Run]) -> None:
    run = new_run()
    Run.objects.all().update(max_output_tokens=64)
    as_alice.post(f"/api/runs/{run.pk}/cancel")
    put(streams, alice, 0, now_ms(streams) + 10**9)

    refused = as_alice.post(f"/api/runs/{run.pk}/retry")

    retry_at = datetime.fromisoformat(refused.json()["retry_at"])
    assert (refused.status_code, code_of(refused)) == (429, "budget_exhausted")
    assert retry_at.utcoffset() == timedelta(0)


def test_a_key_that_came_with_a_refused_question_is_free_for_the_same_again(
    as_alice: Client, alice: User, chat: Chat, model: Model, streams: Redis
) -> None:
    put(streams, alice, 0, now_ms(streams) + 10**9)
    address, key = f"/api/chats/{chat.pk}/messages", {"Idempotency-Key": str(uuid4())}

    def post() -> Answer:
        return as_alice.post(address, {"content": "Hi"}, content_type="application/json", headers=key)

    assert post().status_code == 429
    put(streams, alice, BUDGET * UNITS, now_ms(streams))

    answer = post()
    assert (answer.status_code, answer.headers.get("Idempotent-Replayed")) == (202, None)
