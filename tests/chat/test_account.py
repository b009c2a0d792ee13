"""`GET /api/usage` and `GET /api/models`: what a user may use, and how much of it is in use."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from django.test import Client
from django.utils import timezone
from redis import Redis

from chat import accounting, outcomes
from chat.draft import Counts
from chat.finishing import finish_run
from chat.generation import claim_run
from chat.models import Chat, Run, Status, User
from scheduler.budgets import bucket_key
from scheduler.models import COUNTS, LedgerEntry, Model, Override, Tier
from tests.acts import code_of
from tests.chat.generating import A_MINUTE
from tests.conftest import OUTPUT_CAP


def test_usage_tells_the_tier_and_that_nothing_runs(as_alice: Client) -> None:
    Tier.objects.update(budget_tokens=1000, refill_tokens_per_hour=3600)

    usage = as_alice.get("/api/usage").json()

    full_at = datetime.fromisoformat(usage["budget"].pop("full_at"))
    today = date.fromisoformat(usage["today"].pop("day"))
    assert usage == {
        "tier": "free",
        "tier_name": "Free",
        "concurrency": 2,
        "max_output_tokens": OUTPUT_CAP,
        "own_limits_until": None,
        "running": 0,
        "queued": 0,
        "budget": {"tokens": 1000, "left_tokens": 1000, "refill_tokens_per_hour": 3600, "full_in_s": 0},
        "today": {"models": [], "total": dict.fromkeys(COUNTS, 0)},
    }
    assert (full_at - datetime.now(UTC)).total_seconds() <= 0
    assert today - datetime.now(UTC).date() in (timedelta(0), timedelta(days=-1))


def test_usage_tells_what_is_left_of_the_budget_and_when_it_is_full_again(
    alice: User, as_alice: Client, streams: Redis
) -> None:
    Tier.objects.update(budget_tokens=1000, refill_tokens_per_hour=3600)
    seconds, _ = streams.time()
    before = datetime.now(UTC)
    streams.hset(bucket_key(alice.pk), mapping={"missing": 600 * 3_600_000, "at": (seconds + 10**6) * 1000})

    budget = as_alice.get("/api/usage").json()["budget"]

    assert (budget["left_tokens"], budget["full_in_s"]) == (400, 600)
    full_at = datetime.fromisoformat(budget["full_at"])
    assert before + timedelta(seconds=600) <= full_at <= datetime.now(UTC) + timedelta(seconds=600)


def test_usage_adds_up_todays_runs_of_each_model_and_of_nobody_else(
    alice: User, bob: User, as_alice: Client, free: Tier
) -> None:
    large, small = new_model("large", free), new_model("small", free)
    today = datetime.now(UTC).date()
    counts = {"runs": 2, "input_tokens": 300, "cached_tokens": 100, "output_tokens": 50, "charged_tokens": 260}
    LedgerEntry.objects.create(user=alice, day=today, model=small, **counts)
    LedgerEntry.objects.create(user=alice, day=today, model=large, **counts)
    LedgerEntry.objects.create(user=alice, day=today - timedelta(days=1), model=large, **counts)
    LedgerEntry.objects.create(user=bob, day=today, model=large, **counts)

    assert as_alice.get("/api/usage").json()["today"] == {
        "day": today.isoformat(),
        "models": [{"model": "large", **counts}, {"model": "small", **counts}],
        "total": {name: 2 * count for name, count in counts.items()},
    }


def test_usage_shows_a_run_with_cached_tokens_at_what_it_was_charged(
    as_alice: Client, chat: Chat, model: Model
) -> None:
    Tier.objects.update(refill_tokens_per_hour=1)
    Model.objects.update(cached_token_percent=25)
    asked = as_alice.post(f"/api/chats/{chat.pk}/messages", {"content": "Hi"}, content_type="application/json").json()
    run, claim = claim_run(UUID(asked["run_id"]), "worker", A_MINUTE)
    outcome = outcomes.cancelled(run, Counts(output_tokens=4, cached_tokens=17))
    assert finish_run(run, claim.attempt, outcome, "Hello", uuid4())
    accounting.settle(run)

    usage, shown = as_alice.get("/api/usage").json(), as_alice.get(f"/api/runs/{run.pk}").json()

    charged = run.input_tokens - 17 + 5 + 4  # a quarter of 17 is 5 tokens, rounded up
    counts = {"runs": 1, "input_tokens": run.input_tokens, "cached_tokens": 17, "output_tokens": 4}
    counts["charged_tokens"] = charged
    assert usage["today"]["models"] == [{"model": model.slug, **counts}]
    assert shown["charged_tokens"] == charged
    assert usage["budget"]["left_tokens"] == usage["budget"]["tokens"] - charged


def test_limits_of_the_users_own_hold_until_their_end_date(
    alice: User, as_alice: Client, model: Model, own_limits: Callable[..., Override]
) -> None:
    override = own_limits(alice, concurrency=7, max_output_tokens=16)

    usage, models = as_alice.get("/api/usage").json(), as_alice.get("/api/models").json()["results"]

    assert (usage["concurrency"], usage["max_output_tokens"]) == (7, 16)
    assert datetime.fromisoformat(usage["own_limits_until"]) == override.until
    assert models[0]["max_output_tokens"] == 16
    Override.objects.update(until=timezone.now())
    ended = as_alice.get("/api/usage").json()
    assert (ended["concurrency"], ended["own_limits_until"]) == (2, None)


def test_usage_counts_the_users_own_live_replies(
    alice: User, bob: User, as_alice: Client, as_bob: Client, new_run: Callable[..., Run]
) -> None:
    for status in (Status.QUEUED, Status.QUEUED, Status.STREAMING, Status.DONE, Status.CANCELLED, Status.FAILED):
        new_run(status, in_chat=Chat.objects.create(owner=alice))
    new_run(Status.STREAMING, in_chat=Chat.objects.create(owner=bob))
    new_title = new_run(in_chat=Chat.objects.create(owner=alice))
    Run.objects.filter(pk=new_title.pk).update(kind=Run.Kind.TITLE)

    alices, bobs = as_alice.get("/api/usage").json(), as_bob.get("/api/usage").json()

    assert (alices["running"], alices["queued"]) == (1, 2)
    assert (bobs["running"], bobs["queued"]) == (1, 0)


def test_usage_is_of_the_tier_that_the_user_has_now(alice: User, as_alice: Client, pro: Tier) -> None:
    User.objects.filter(pk=alice.pk).update(tier=pro)

    usage = as_alice.get("/api/usage").json()

    assert (usage["tier"], usage["tier_name"], usage["concurrency"]) == ("pro", "Pro", 8)


def new_model(slug: str, *tiers: Tier, **columns: Any) -> Model:
    model = Model.objects.create(slug=slug, name=slug.title(), source="/nowhere", context_window=4096, **columns)
    model.tiers.set(tiers)
    return model


def test_models_are_those_that_the_tier_may_use_the_default_one_first(
    as_alice: Client, free: Tier, pro: Tier, model: Model
) -> None:
    new_model("a-small-one", free, pro, max_output_tokens=16)
    new_model("for-others", pro)
    new_model("switched-off", free, is_active=False)

    assert as_alice.get("/api/models").json() == {
        "results": [
            {
                "slug": model.slug,
                "name": "Default",
                "context_window": 2048,
                "max_output_tokens": OUTPUT_CAP,  # the tier's, below the model's
                "is_default": True,
            },
            {
                "slug": "a-small-one",
                "name": "A-Small-One",
                "context_window": 4096,
                "max_output_tokens": 16,
                "is_default": False,
            },
        ],
        "next": None,
    }


def test_both_need_a_credential_and_take_nothing_but_get(client: Client, as_alice: Client) -> None:
    for path in ("/api/usage", "/api/models"):
        assert code_of(client.get(path)) == "not_authenticated"
        assert code_of(as_alice.post(path, {}, content_type="application/json")) == "method_not_allowed"
