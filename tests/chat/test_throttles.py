"""Who sends too much is told to wait, and nobody else is."""

from __future__ import annotations

from itertools import count
from secrets import token_hex

import pytest
from django.conf import LazySettings
from django.test import Client

from chat import throttles
from chat.models import User
from scheduler.errors import TooManySignIns
from tests.acts import bearing, code_of

LIMIT = 5


@pytest.fixture
def _few(settings: LazySettings) -> None:
    settings.REQUESTS_PER_MINUTE = LIMIT


def statuses(client: Client, times: int) -> list[int]:
    return [client.get("/api/chats").status_code for _ in range(times)]


@pytest.mark.usefixtures("_few")
def test_a_credential_over_its_rate_is_told_when_to_come_back(as_alice: Client) -> None:
    assert statuses(as_alice, LIMIT) == [200] * LIMIT

    refused = as_alice.get("/api/chats")

    assert (refused.status_code, code_of(refused)) == (429, "too_many_requests")
    assert 1 <= int(refused.headers["Retry-After"]) <= 60


@pytest.mark.usefixtures("_few")
def test_a_key_that_is_used_up_leaves_the_users_other_key_and_everybody_else_alone(
    alice: User, as_alice: Client, as_bob: Client
) -> None:
    assert statuses(as_alice, LIMIT + 1)[-1] == 429

    assert statuses(bearing(alice), 1) == [200]
    assert statuses(as_bob, 1) == [200]


@pytest.mark.usefixtures("_few")
def test_a_session_has_a_counter_of_its_own(alice: User, as_alice: Client) -> None:
    here, there = Client(), Client()
    here.force_login(alice)
    there.force_login(alice)

    assert statuses(here, LIMIT + 1)[-1] == 429

    assert statuses(there, 1) == statuses(as_alice, 1) == [200]


@pytest.mark.usefixtures("_few")
def test_who_is_nobody_is_told_so_however_often_they_ask(client: Client, db: None) -> None:
    assert statuses(client, 2 * LIMIT) == [401] * 2 * LIMIT


@pytest.mark.usefixtures("_few")
def test_with_redis_away_every_request_passes_and_one_line_says_why(
    as_alice: Client, silent_redis: str, settings: LazySettings, caplog: pytest.LogCaptureFixture
) -> None:
    settings.STREAMS_URL = silent_redis

    assert statuses(as_alice, 4 * LIMIT) == [200] * 4 * LIMIT

    assert [record.getMessage() for record in caplog.records if "dispensable" in record.name] == [
        "redis.away reason=TimeoutError"
    ]


addresses = (f"198.51.{token_hex(1)}.{number}" for number in count())


def fail(address: str, username: str) -> None:
    with throttles.sign_in(address, username):
        pass


def test_a_name_that_keeps_failing_must_wait_at_its_address_only() -> None:
    here, there = next(addresses), next(addresses)
    for _ in range(throttles.FAILURES_OF_A_NAME):
        fail(here, "alice")

    with pytest.raises(TooManySignIns) as refusal:
        fail(here, "alice")

    assert 1 <= refusal.value.retry_after_s <= 60 * throttles.SIGN_IN_MINUTES
    fail(here, "bob")
    fail(there, "alice")


def test_an_address_that_keeps_failing_must_wait_whatever_names_it_tries() -> None:
    address = next(addresses)
    for number in range(throttles.FAILURES_OF_AN_ADDRESS):
        fail(address, f"user-{number}")

    with pytest.raises(TooManySignIns):
        fail(address, "alice")


def test_sign_ins_that_succeed_or_break_are_not_counted() -> None:
    address = next(addresses)
    for number in range(2 * throttles.FAILURES_OF_AN_ADDRESS):
        with throttles.sign_in(address, "alice") as attempt:
            attempt.has_succeeded = True
        with pytest.raises(ZeroDivisionError), throttles.sign_in(address, f"user-{number}"):
            raise ZeroDivisionError

    fail(address, "alice")


def test_attempts_that_are_under_way_count_already() -> None:
    address = next(addresses)
    under_way = [throttles.sign_in(address, "alice") for _ in range(throttles.FAILURES_OF_A_NAME)]
    for attempt in under_way:
        attempt.__enter__()

    with pytest.raises(TooManySignIns):
        fail(address, "alice")


@pytest.mark.parametrize(
    ("address", "counted_as"),
    [
        ("203.0.113.9", "203.0.113.9"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("::ffff:203.0.113.9", "::ffff:203.0.113.9"),
        ("", ""),
    ],
)
def test_an_ipv6_address_counts_as_its_network(address: str, counted_as: str) -> None:
    assert throttles.network(address) == counted_as
