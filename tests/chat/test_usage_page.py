"""`/usage`: what is left of the budget, and today's use, for people."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from html import unescape
from http import HTTPStatus

import pytest
from django.conf import settings
from django.test import Client
from redis import Redis

from chat.models import User
from scheduler.budgets import bucket_key
from scheduler.models import LedgerEntry, Model, Override, Tier

UNITS = 3_600_000  # in a bucket, of a token


@pytest.fixture
def browser(alice: User) -> Client:
    client = Client()
    client.force_login(alice)
    return client


@pytest.fixture(autouse=True)
def _plan(free: Tier) -> None:
    Tier.objects.update(budget_tokens=50_000, refill_tokens_per_hour=3600)


def words(browser: Client) -> str:
    """What can be read on the page, in one line."""
    answer = browser.get("/usage")
    assert answer.status_code == HTTPStatus.OK
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", answer.content.decode())))


def put(streams: Redis, user: User, tokens: int) -> None:
    """Have the user's bucket hold so much, and gain nothing for long."""
    seconds, _ = streams.time()
    missing = (User.objects.get(pk=user.pk).limits.budget_tokens - tokens) * UNITS
    streams.hset(bucket_key(user.pk), mapping={"missing": missing, "at": (seconds + 10**6) * 1000})


def test_a_full_budget_is_shown_and_that_nothing_was_used(browser: Client) -> None:
    shown = words(browser)

    assert "50,000 of 50,000 tokens left." in shown
    assert "Full again" not in shown
    assert "Nothing yet since midnight UTC." in shown


@pytest.mark.parametrize(
    ("tokens", "told"),
    [
        (50_000 - 4 * 3600, "Full again in 3 hours, 59 minutes"),
        (49_990, "Full again in less than a minute"),
    ],
)
def test_a_used_budget_says_when_it_is_full_again(
    browser: Client, alice: User, streams: Redis, tokens: int, told: str
) -> None:
    put(streams, alice, tokens)

    shown = words(browser).replace("\N{NO-BREAK SPACE}", " ")

    assert f"{tokens:,} of 50,000 tokens left." in shown
    assert told in shown


def test_todays_use_stands_by_model_with_the_sum_of_several(
    browser: Client, alice: User, bob: User, model: Model
) -> None:
    other = Model.objects.create(slug="zz-other", name="Other", source="/nowhere", context_window=64)
    counts = {"runs": 2, "input_tokens": 1300, "cached_tokens": 100, "output_tokens": 50, "charged_tokens": 1260}
    today = datetime.now(UTC).date()
    for user, day, of in ((alice, today, model), (alice, today - timedelta(days=1), model), (bob, today, model)):
        LedgerEntry.objects.create(user=user, day=day, model=of, **counts)
    assert "Default 1,300 read, 50 written 2 1,260 Since" in words(browser)

    LedgerEntry.objects.create(user=alice, day=today, model=other, **counts)

    each = "1,300 read, 50 written 2 1,260"
    assert f"Default {each} Other {each} All 4 2,520 Since" in words(browser)


def test_limits_of_the_users_own_are_shown_with_their_end(
    browser: Client, alice: User, own_limits: Callable[..., Override]
) -> None:
    override = own_limits(alice, budget_tokens=700)

    shown = words(browser)

    assert "700 of 700 tokens left." in shown
    assert f"until {override.until:%-d %B %Y, %H:%M} UTC" in shown


def test_it_is_linked_from_the_chats_and_for_signed_in_people_only(browser: Client, client: Client) -> None:
    assert 'href="/usage"' in browser.get("/").content.decode()

    assert client.get("/usage").headers["Location"] == "/sign-in?next=/usage"


@pytest.mark.parametrize(("language", "number"), [("en", "50,000"), ("fa", "۵۰٬۰۰۰"), ("zh-hans", "50,000")])
def test_numbers_are_written_as_the_language_writes_them(browser: Client, language: str, number: str) -> None:
    browser.cookies.load({settings.LANGUAGE_COOKIE_NAME: language})

    assert number in words(browser)
