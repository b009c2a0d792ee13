"""Signing up, in and out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from http import HTTPStatus

import pytest
from django.conf import LazySettings
from django.conf import settings as product
from django.test import Client
from redis import Redis

from chat import throttles
from chat.models import User
from scheduler.models import Tier

PASSWORD = "correct horse battery"
NEW = {"username": "carol", "password1": PASSWORD, "password2": PASSWORD}


@pytest.fixture(autouse=True)
def _quick_hashes(settings: LazySettings) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # half a second each otherwise


@pytest.fixture
def browser() -> Client:
    """Nobody yet. It checks CSRF tokens, as a browser's requests are checked."""
    return Client(enforce_csrf_checks=True)


@pytest.fixture
def alice(free: Tier) -> User:
    return User.objects.create_user("alice", password=PASSWORD, tier=free)


@pytest.fixture
def _fresh_counts() -> Iterator[None]:
    """No failure is remembered, before or after: the address of all tests is one."""
    forget_failures()
    yield
    forget_failures()


def forget_failures() -> None:
    """Of sign-ins, whoever's."""
    with Redis.from_url(product.STREAMS_URL) as redis:
        for key in redis.scan_iter("throttle*sign-ins*"):
            redis.delete(key)


def submit(browser: Client, address: str, **fields: str) -> tuple[int, str]:
    """Fill in the form of a page; the answer's status, and where it leads or what it says."""
    page = browser.get(address).content.decode()
    token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', page)
    hidden = dict(re.findall(r'type="hidden" name="(next)" value="([^"]*)"', page))
    assert token, page
    answer = browser.post(address.split("?", maxsplit=1)[0], {**hidden, **fields, "csrfmiddlewaretoken": token[1]})
    return answer.status_code, answer.headers.get("Location", answer.content.decode())


def test_who_signs_up_is_signed_in_with_the_default_tier(browser: Client, free: Tier) -> None:
    assert submit(browser, "/sign-up", **NEW) == (302, "/")

    assert User.objects.get(username="carol").tier == free
    assert "carol" in browser.get("/").content.decode()


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"username": "Alice"}, "already exists"),
        ({"username": ""}, "required"),
        ({"username": "a\0b"}, "Null characters"),
        ({"password2": "another horse"}, "match"),
        ({"password1": "12345678"}, "match"),
        ({"password1": "12345678"}, "too common"),
        ({"password1": "12345678", "password2": "12345678"}, "too common"),
    ],
)
def test_a_sign_up_that_is_refused_says_why_and_makes_nobody(
    browser: Client, alice: User, fields: dict[str, str], says: str
) -> None:
    status, page = submit(browser, "/sign-up", **{**NEW, **fields})

    assert status == HTTPStatus.OK
    assert says in page
    assert list(User.objects.all()) == [alice]


def test_with_sign_up_switched_off_there_is_no_page_and_no_link(
    browser: Client, free: Tier, settings: LazySettings
) -> None:
    assert "/sign-up" in browser.get("/sign-in").content.decode()
    settings.SIGN_UP = False

    assert browser.get("/sign-up").status_code == HTTPStatus.NOT_FOUND
    assert "/sign-up" not in browser.get("/sign-in").content.decode()
    browser.handler.enforce_csrf_checks = False
    assert browser.post("/sign-up", NEW).status_code == HTTPStatus.NOT_FOUND
    assert not User.objects.exists()


def test_signing_in_leads_to_the_page_that_was_asked_for_under_a_new_session_key(browser: Client, alice: User) -> None:
    asked = browser.get("/?cursor=1").headers["Location"]
    session = browser.session
    session["planted"] = "by whoever set this cookie"
    session.save()
    planted = session.session_key

    assert submit(browser, asked, username="alice", password=PASSWORD) == (302, "/?cursor=1")

    assert browser.session.session_key != planted


@pytest.mark.parametrize("address", ["/sign-in", "/sign-up"])
@pytest.mark.parametrize("elsewhere", ["https://evil.example/", "//evil.example", "javascript:alert(1)"])
def test_next_never_leads_to_another_site(browser: Client, alice: User, address: str, elsewhere: str) -> None:
    fields = {"username": "alice", "password": PASSWORD} if address == "/sign-in" else NEW

    assert submit(browser, f"{address}?next={elsewhere}", **fields) == (302, "/")


def test_a_wrong_password_and_an_unknown_name_get_the_same_answer(browser: Client, alice: User) -> None:
    answers = [submit(browser, "/sign-in", username=name, password="wrong") for name in ("alice", "nobody")]

    reasons = {re.search(r'role="alert">([^<]+)', page)[1] for _, page in answers}  # type: ignore[index]
    assert len(reasons) == 1
    assert {status for status, _ in answers} == {HTTPStatus.OK}


def test_signing_out_takes_a_post_with_a_token(browser: Client, alice: User) -> None:
    browser.force_login(alice)
    assert browser.get("/sign-out").status_code == HTTPStatus.METHOD_NOT_ALLOWED
    refused = browser.post("/sign-out")
    assert refused.status_code == HTTPStatus.FORBIDDEN
    assert "out of date" in refused.content.decode()
    token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', browser.get("/").content.decode())
    assert token

    answer = browser.post("/sign-out", {"csrfmiddlewaretoken": token[1]})

    assert answer.headers["Location"] == "/sign-in"
    assert browser.get("/").headers["Location"] == "/sign-in?next=/"


def test_whoever_is_signed_in_is_led_past_both_forms(browser: Client, alice: User) -> None:
    browser.force_login(alice)

    assert browser.get("/sign-in?next=/%3Fcursor=1").headers["Location"] == "/?cursor=1"
    assert browser.get("/sign-up").headers["Location"] == "/"


@pytest.mark.parametrize("address", ["/sign-in", "/sign-up"])
def test_no_cache_keeps_a_form_and_password_managers_know_its_fields(browser: Client, db: None, address: str) -> None:
    answer = browser.get(address)

    assert {"private", "no-store"} <= set(answer.headers["Cache-Control"].split(", "))
    page = answer.content.decode()
    assert 'autocomplete="username"' in page
    assert f'autocomplete="{"current" if address == "/sign-in" else "new"}-password"' in page


@pytest.mark.usefixtures("_fresh_counts")
@pytest.mark.parametrize("address", ["/sign-in", "/admin/login/"])
def test_after_too_many_failures_even_the_right_password_must_wait(
    browser: Client, operator: User, address: str
) -> None:
    operator.set_password(PASSWORD)
    operator.save()
    spellings = ("operator", " operator ", "\uff4fperator")
    for number in range(throttles.FAILURES_OF_A_NAME):
        status, _ = submit(browser, address, username=spellings[number % 3], password="wrong")
        assert status == HTTPStatus.OK

    status, page = submit(browser, address, username="operator", password=PASSWORD)

    assert status == HTTPStatus.TOO_MANY_REQUESTS
    assert re.search(r"Try again in \d minutes?", page)
    assert submit(browser, address, username="somebody", password="wrong")[0] == HTTPStatus.OK


@pytest.mark.usefixtures("_fresh_counts")
def test_signing_in_is_no_failure_however_often(browser: Client, alice: User) -> None:
    for _ in range(throttles.FAILURES_OF_A_NAME + 1):
        assert submit(Client(), "/sign-in", username="alice", password=PASSWORD)[0] == HTTPStatus.FOUND
