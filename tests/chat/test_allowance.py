"""Every answer to a credential says how many requests and tokens are left: RateLimit-Policy and RateLimit."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from django.conf import LazySettings
from django.test import Client
from redis import Redis

from chat.api import paging
from chat.models import ApiKey, Chat, Run, User
from scheduler.models import Model, Tier
from scheduler.prices import cost
from tests.acts import bearing, code_of

if TYPE_CHECKING:
    from django.test.client import _MonkeyPatchedWSGIResponse as Answer

BUDGET = 1000
A_TOKEN_AN_HOUR = 1
HOUR_S = 3600
REQUESTS = 20
POLICY = f'"requests";q={REQUESTS};w=60, "tokens";q={BUDGET};w={BUDGET * HOUR_S};qu="tokens"'
LEFT = re.compile(r'"requests";r=(\d+);t=(\d+), "tokens";r=(\d+);t=(\d+)')


@pytest.fixture(autouse=True)
def _plan(free: Tier, settings: LazySettings) -> None:
    """Nothing comes back while a test looks."""
    settings.REQUESTS_PER_MINUTE = REQUESTS
    Tier.objects.update(budget_tokens=BUDGET, refill_tokens_per_hour=A_TOKEN_AN_HOUR)


def left(answer: Answer) -> tuple[int, int, int, int]:
    """Requests, seconds, tokens, seconds."""
    found = LEFT.fullmatch(answer.headers["RateLimit"])
    assert found, answer.headers["RateLimit"]
    requests, requests_s, tokens, tokens_s = map(int, found.groups())
    return requests, requests_s, tokens, tokens_s


def ask(client: Client, chat: Chat, **more: object) -> Answer:
    address = f"/api/chats/{chat.pk}/messages"
    return client.post(address, {"content": "Hi", **more}, content_type="application/json")


def test_the_policies_are_the_credentials_requests_and_the_users_tokens(as_alice: Client) -> None:
    assert as_alice.get("/api/models").headers["RateLimit-Policy"] == POLICY


def test_each_request_is_one_less_and_an_unused_budget_is_full(as_alice: Client) -> None:
    first, second = left(as_alice.get("/api/models")), left(as_alice.get("/api/chats"))

    assert (first[0], second[0]) == (REQUESTS - 1, REQUESTS - 2)
    assert 1 <= first[1] <= 60
    assert first[2:] == second[2:] == (BUDGET, 0)


def test_the_seconds_are_those_until_the_window_moves_on(alice: User, as_alice: Client, streams: Redis) -> None:
    as_alice.get("/api/models")
    [counter] = streams.scan_iter(f"*key:{ApiKey.objects.get(user=alice).digest}*")
    streams.pexpire(counter, 77_000)  # it is kept for a window longer than it counts

    assert 1 <= left(as_alice.get("/api/models"))[1] <= 17


def test_an_answer_to_a_question_counts_what_it_reserved(as_alice: Client, chat: Chat, model: Model) -> None:
    answer = ask(as_alice, chat)

    run = Run.objects.get()
    held = cost(run.input_tokens, run.max_output_tokens)
    _, _, tokens, full_in_s = left(answer)
    assert (answer.status_code, tokens) == (202, BUDGET - held)
    assert held * HOUR_S - 60 < full_in_s <= held * HOUR_S


def test_a_users_credentials_share_the_tokens_and_not_the_requests(
    alice: User, as_alice: Client, chat: Chat, model: Model
) -> None:
    here = left(ask(as_alice, chat))

    there = left(bearing(alice).get("/api/models"))

    assert there[0] == here[0] == REQUESTS - 1
    assert there[2] == here[2] < BUDGET


def test_a_cancelled_run_gives_its_tokens_back_by_the_answer(as_alice: Client, chat: Chat, model: Model) -> None:
    run_id = ask(as_alice, chat).json()["run_id"]

    assert left(as_alice.post(f"/api/runs/{run_id}/cancel"))[2] == BUDGET


@pytest.mark.parametrize(
    ("request_of", "status"),
    [
        (lambda client: client.get(f"/api/chats/{uuid4()}"), 404),
        (lambda client: client.delete("/api/models"), 405),
        (lambda client: client.post("/api/chats", "[", content_type="application/json"), 400),
        (lambda client: client.post("/api/chats", "<a/>", content_type="text/xml"), 415),
    ],
)
def test_refusals_say_it_too(as_alice: Client, request_of: Callable[[Client], Answer], status: int) -> None:
    answer = request_of(as_alice)

    assert (answer.status_code, answer.headers["RateLimit-Policy"]) == (status, POLICY)
    assert left(answer)[0] == REQUESTS - 1


def test_who_is_over_the_rate_has_none_left_until_retry_after(as_alice: Client) -> None:
    for _ in range(REQUESTS):
        as_alice.get("/api/models")

    refused = as_alice.get("/api/models")

    requests, more_in_s, *_ = left(refused)
    assert (code_of(refused), requests) == ("too_many_requests", 0)
    assert int(refused.headers["Retry-After"]) - 1 <= more_in_s <= int(refused.headers["Retry-After"])


def test_a_bug_of_ours_says_it_too(as_alice: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paging, "chats", lambda *_: 1 / 0)
    as_alice.raise_request_exception = False

    answer = as_alice.get("/api/chats")

    assert (answer.status_code, left(answer)[0]) == (500, REQUESTS - 1)


def test_a_browsers_session_is_a_credential_too(alice: User) -> None:
    browser = Client()
    browser.force_login(alice)

    assert left(browser.get("/api/models"))[0] == REQUESTS - 1
    assert "RateLimit" not in browser.get("/").headers


def test_who_is_nobody_is_told_nothing(client: Client) -> None:
    wrong = Client(headers={"Authorization": "Bearer pal_wrong"})

    for answer in (client.get("/api/models"), wrong.get("/api/models")):
        assert answer.status_code == 401
        assert not {"RateLimit", "RateLimit-Policy"} & set(answer.headers)


def test_limits_of_the_users_own_are_the_policy(alice: User, as_alice: Client, own_limits: Callable[..., None]) -> None:
    own_limits(alice, budget_tokens=500, refill_tokens_per_hour=7)

    answer = as_alice.get("/api/models")

    assert answer.headers["RateLimit-Policy"].endswith('"tokens";q=500;w=257143;qu="tokens"')
    assert left(answer)[2:] == (500, 0)


def test_with_redis_away_nothing_is_counted_and_all_is_left(
    as_alice: Client, silent_redis: str, settings: LazySettings
) -> None:
    settings.STREAMS_URL = silent_redis

    answer = as_alice.get("/api/models")

    assert (answer.status_code, left(answer)) == (200, (REQUESTS, 0, BUDGET, 0))
