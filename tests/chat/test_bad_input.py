"""Bad input, on whatever ground it is refused: a status, a code, and nothing stored, queued or lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from django.conf import LazySettings
from django.db.models.functions import Now
from django.test import AsyncClient, Client
from pytest_django import DjangoCaptureOnCommitCallbacks
from redis import Redis

from chat.models import ApiKey, Chat, Run, Status, User
from scheduler.models import Model, Tier
from tests.acts import code_of, everything_stored


@dataclass(frozen=True)
class Stage:
    """Alice's chat, and what can be made to stand in her way."""

    chat: Chat
    bob: User
    client: Client
    new_run: Callable[..., Run]
    settings: LazySettings


@pytest.fixture(params=[{}, {"HTTP_IDEMPOTENCY_KEY": "a key"}], ids=["", "with a key"])
def asking(request: pytest.FixtureRequest, as_alice: Client) -> Client:
    as_alice.defaults |= request.param
    return as_alice


@pytest.fixture
def stage(chat: Chat, bob: User, asking: Client, new_run: Callable[..., Run], settings: LazySettings) -> Stage:
    return Stage(chat, bob, asking, new_run, settings)


Arrange = Callable[[Stage], Any]


def busy(stage: Stage) -> None:
    stage.new_run(Status.STREAMING)


def as_many_as_allowed(stage: Stage) -> None:
    for _ in range(stage.chat.owner.tier.concurrency):
        stage.new_run(in_chat=Chat.objects.create(owner=stage.chat.owner))


def full(stage: Stage) -> None:
    stage.new_run(Status.DONE)
    Tier.objects.update(chat_turns=1)


def over_the_rate(stage: Stage) -> None:
    stage.settings.REQUESTS_PER_MINUTE = 1
    assert stage.client.get("/api/chats").status_code == 200


def nothing(_stage: Stage) -> None: ...


GROUNDS: dict[str, tuple[Arrange, Any, int, str]] = {
    "blank": (nothing, {"content": " \n"}, 400, "content_blank"),
    "unseen": (nothing, {"content": "\u200b\u2060\u3000"}, 400, "content_blank"),
    "NUL": (nothing, {"content": "a\0b"}, 400, "content_has_nul"),
    "half a character": (nothing, {"content": "\ud83d"}, 400, "content_not_unicode"),
    "no text": (nothing, {"content": {"text": "Hi"}}, 400, "content_not_text"),
    "unknown model": (nothing, {"content": "Hi", "model": "nowhere"}, 400, "model_unknown"),
    "no cap": (nothing, {"content": "Hi", "max_output_tokens": 0}, 400, "max_output_tokens_invalid"),
    "longer than the window": (nothing, {"content": "word " * 3000}, 400, "prompt_too_long"),
    "more bytes than are tokenised": (nothing, {"content": "x" * (64 * 1024 + 1)}, 400, "content_too_large"),
    "a megabyte": (nothing, {"content": "x" * (1 << 20)}, 413, "body_too_large"),
    "a list": (nothing, [{"content": "Hi"}], 400, "body_not_object"),
    "no default model": (lambda _: Model.objects.update(is_active=False), {"content": "Hi"}, 400, "model_unknown"),
    "broken model": (lambda _: Model.objects.update(source="/nowhere"), {"content": "Hi"}, 503, "model_unusable"),
    "answered already": (busy, {"content": "Hi"}, 409, "chat_busy"),
    "full": (full, {"content": "Hi"}, 409, "chat_full"),
    "too many runs": (as_many_as_allowed, {"content": "Hi"}, 429, "too_many_runs"),
    "too many requests": (over_the_rate, {"content": "Hi"}, 429, "too_many_requests"),
    "revoked key": (lambda _: ApiKey.objects.update(revoked_at=Now()), {"content": "Hi"}, 401, "not_authenticated"),
    "expired key": (
        lambda _: ApiKey.objects.update(expires_at=Now() - timedelta(seconds=1)),
        {"content": "Hi"},
        401,
        "not_authenticated",
    ),
    "shut out": (lambda _: User.objects.update(is_active=False), {"content": "Hi"}, 401, "not_authenticated"),
    "somebody else's": (lambda stage: Chat.objects.update(owner=stage.bob), {"content": "Hi"}, 404, "not_found"),
    "deleted": (lambda _: Chat.objects.all().delete(), {"content": "Hi"}, 404, "not_found"),
}


@pytest.mark.parametrize("ground", GROUNDS)
def test_a_submission_refused_on_any_ground_leaves_nothing(
    stage: Stage,
    broker: Redis,
    model: Model,
    django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks,
    ground: str,
) -> None:
    arrange, body, status, code = GROUNDS[ground]
    arrange(stage)
    before = everything_stored()

    with django_capture_on_commit_callbacks() as after_commit:
        answer = stage.client.post(f"/api/chats/{stage.chat.pk}/messages", body, content_type="application/json")

    assert (answer.status_code, code_of(answer)) == (status, code)
    assert ("Retry-After" in answer.headers) == (status in {429, 503})
    assert everything_stored() == before
    assert after_commit == []
    assert list(broker.scan_iter(f"*{model.slug}*")) == []


@pytest.mark.parametrize("call", ["POST /api/chats", "POST /api/chats/{chat}/messages", "POST /api/runs/{run}/retry"])
@pytest.mark.parametrize("key", ["", "k" * 256, "a\tb", "clé", "a\x7fb"])
def test_what_cannot_be_an_idempotency_key_is_refused(
    as_alice: Client, new_run: Callable[..., Run], call: str, key: str
) -> None:
    run = new_run(Status.DONE)
    method, address = call.format(chat=run.chat_id, run=run.pk).split()
    before = everything_stored()

    body, headers = '{"content": "Hi"}', {"Idempotency-Key": key}
    answer = as_alice.generic(method, address, body, content_type="application/json", headers=headers)

    assert (answer.status_code, code_of(answer)) == (400, "idempotency_key_invalid")
    assert everything_stored() == before


NO_BODIES = {
    "cut off": (b"{", 400, "body_not_json"),
    "of other bytes": (b"\xff\xfe{", 400, "body_not_json"),
    "half a character": (b'{"title": "\xed\xa0\x80", "content": "\xed\xa0\x80"}', 400, "body_not_json"),
    "too deep": (b"[" * 100_000, 400, "body_not_json"),
    "a list": (b"[]", 400, "body_not_object"),
    "a text": (b'"Hi"', 400, "body_not_object"),
    "a megabyte": (b'{"title": "' + b"x" * (1 << 20) + b'"}', 413, "body_too_large"),
}
TAKES_A_BODY = ("POST /api/chats", "PATCH /api/chats/{chat}", "POST /api/chats/{chat}/messages")


@pytest.mark.parametrize("call", TAKES_A_BODY)
@pytest.mark.parametrize("kind", NO_BODIES)
def test_a_body_that_is_none_changes_nothing(as_alice: Client, chat: Chat, call: str, kind: str) -> None:
    body, status, code = NO_BODIES[kind]
    method, address = call.format(chat=chat.pk).split()
    before = everything_stored()

    answer = as_alice.generic(method, address, body, content_type="application/json")

    assert (answer.status_code, code_of(answer)) == (status, code)
    assert everything_stored() == before


@pytest.mark.parametrize(
    "address",
    [
        "/admin/scheduler/tier/%00/change/",
        "/admin/chat/run/%00/delete/",
        "/admin/chat/run/?status__exact=%00",
        "/admin/scheduler/ledgerentry/?user__tier__slug__exact=free%00",
        "/sign-in?next=/%00",
        "/usage?x=a%00b",
    ],
)
def test_a_nul_in_an_address_is_refused_with_a_page(
    as_operator: Client, model: Model, caplog: pytest.LogCaptureFixture, address: str
) -> None:
    answer = as_operator.get(address)

    assert (answer.status_code, answer.headers["Content-Type"]) == (400, "text/html; charset=utf-8")
    assert "Content-Security-Policy" in answer.headers
    assert {record.name for record in caplog.records} == {"django.security.SuspiciousOperation"}


@pytest.mark.parametrize("address", ["/", "/admin/", "/api/chats", "/api/events"])
def test_a_nul_in_a_sessions_cookie_is_refused(client: Client, address: str) -> None:
    answer = client.get(address, headers={"Cookie": r'sessionid="\000aaaaaaaaaaaa"'})

    assert answer.status_code == 400
    assert (answer.headers["Content-Type"] == "application/problem+json") == address.startswith("/api/")


async def test_a_nul_in_an_address_is_refused_to_who_asks_asynchronously() -> None:
    assert (await AsyncClient().get("/sign-in?next=%00")).status_code == 400


@pytest.mark.parametrize(
    ("address", "status", "code"),
    [
        ("/api/chats/%00", 404, "not_found"),
        ("/api/runs/%00/stream", 404, "not_found"),
        ("/api/chats/{chat}/messages?cursor=%00", 400, "cursor_invalid"),
        ("/api/chats?limit=1%00", 400, "limit_invalid"),
        ("/api/%00", 404, "not_found"),
    ],
)
def test_a_nul_in_an_address_of_the_api_is_told_what_is_wrong(
    as_alice: Client, chat: Chat, address: str, status: int, code: str
) -> None:
    answer = as_alice.get(address.format(chat=chat.pk))

    assert (answer.status_code, code_of(answer)) == (status, code)
    assert answer.headers["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize("address", ["/api/chats", "/api/chats/{chat}/messages"])
@pytest.mark.parametrize(
    ("query", "code"),
    [
        *((f"limit={limit}", "limit_invalid") for limit in ("0", "-1", "1000000", "ten", "1e1", "%00", "٣")),
        *((f"cursor={cursor}", "cursor_invalid") for cursor in ("x", "-1", "1-", "%00", "é", "0x1", "9" * 400)),
        # A cursor of the other list, whichever that is, cut short.
        ("cursor=1780000000000000-0192f7c43b7e70008a1b2c3d4e5f60", "cursor_invalid"),
    ],
)
def test_a_page_that_is_none_is_refused(as_alice: Client, chat: Chat, address: str, query: str, code: str) -> None:
    answer = as_alice.get(f"{address.format(chat=chat.pk)}?{query}")

    assert (answer.status_code, code_of(answer)) == (400, code)
