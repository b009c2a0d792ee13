"""Scripts of other sites: who may call the API from a browser, and with what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import httpx
import pytest

from chatsite import cors
from tests.stack.stack import Stack, web_beside

LISTED, OTHER = "https://app.example.org", "https://evil.example.org"
ORIGIN, CREDENTIALS = "Access-Control-Allow-Origin", "Access-Control-Allow-Credentials"
NOTHING = "/api/runs/00000000-0000-7000-8000-000000000000/stream"


@pytest.fixture(scope="module")
def web(scripted_stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a web process that knows another site."""
    telling = replace(scripted_stack, environ={**scripted_stack.environ, "CORS_ALLOWED_ORIGINS": LISTED})
    with web_beside(telling, tmp_path_factory.mktemp("cors")) as (_, port):
        yield f"http://127.0.0.1:{port}"


def preflight(origin: str, method: str = "POST", headers: str = "authorization") -> Mapping[str, str]:
    """What a browser asks before it sends a script's request."""
    asked = {"Access-Control-Request-Method": method, "Access-Control-Request-Headers": headers}
    return {"Origin": origin, **asked}


def bearing(stack: Stack, origin: str = LISTED) -> dict[str, str]:
    return {"Authorization": f"Bearer {stack.key}", "Origin": origin}


def said(answer: httpx.Response) -> list[str]:
    """Of CORS, the names of the answer's headers."""
    return [name for name in answer.headers if name.startswith("access-control-")]


@pytest.mark.parametrize("path", ["/api/chats", "/v1/chat/completions", NOTHING])
def test_a_listed_site_may_send_what_clients_send(web: str, path: str) -> None:
    answer = httpx.options(web + path, headers=preflight(LISTED))

    assert (answer.status_code, answer.headers[ORIGIN]) == (200, LISTED)
    allowed = answer.headers["Access-Control-Allow-Headers"].split(", ")
    assert set(cors.ASKED) == set(allowed) >= {"authorization", "idempotency-key", "x-stainless-lang"}
    assert {"x-csrftoken", "cookie"}.isdisjoint(allowed)
    assert set(answer.headers["Access-Control-Allow-Methods"].split(", ")) == {"DELETE", "GET", "PATCH", "POST"}
    assert CREDENTIALS not in answer.headers


def test_a_listed_site_reads_answers_and_refusals(web: str, scripted_stack: Stack) -> None:
    asked = [
        httpx.get(f"{web}/api/chats", headers=bearing(scripted_stack)),
        httpx.get(f"{web}/api/chats", headers={"Origin": LISTED}),
        httpx.get(f"{web}/api/chats?cursor=%00", headers=bearing(scripted_stack)),
        httpx.get(f"{web}/api/nothing", headers={"Origin": LISTED}),
        httpx.get(f"{web}/api/chats", headers={"Origin": LISTED, "Host": "elsewhere.example"}),
        httpx.get(web + NOTHING, headers=bearing(scripted_stack)),
    ]

    assert [answer.status_code for answer in asked] == [200, 401, 400, 404, 400, 404]
    for answer in asked:
        assert answer.headers[ORIGIN] == LISTED
        assert "Retry-After" in answer.headers["Access-Control-Expose-Headers"].split(", ")
        assert "origin" in answer.headers["Vary"].lower()
        assert CREDENTIALS not in answer.headers


def test_a_listed_site_reads_streams_and_what_has_not_changed(web: str, scripted_stack: Stack) -> None:
    with httpx.Client(base_url=web, headers=bearing(scripted_stack)) as site:
        chat = site.post("/api/chats", json={}).json()["id"]
        asked = site.post(f"/api/chats/{chat}/messages", json={"content": '[[script {"text": "Yes."}]]'}).json()
        stream = site.get(asked["stream"])
        listed = site.get("/api/chats")
        again = site.get("/api/chats", headers={"If-None-Match": listed.headers["ETag"]})

    assert "event: done" in stream.text
    assert (again.status_code, again.content) == (304, b"")
    assert "Content-Length" not in again.headers
    for answer in (stream, again):
        assert answer.headers[ORIGIN] == LISTED
        assert CREDENTIALS not in answer.headers


def test_another_site_is_told_nothing(web: str, scripted_stack: Stack) -> None:
    for origin in (OTHER, "null", f"{LISTED}.evil.org", LISTED.replace("https", "http")):
        assert said(httpx.options(f"{web}/api/chats", headers=preflight(origin))) == []
        assert said(httpx.get(f"{web}/api/chats", headers=bearing(scripted_stack, origin))) == []


def test_pages_are_of_no_other_site(web: str) -> None:
    for path in ("/", "/sign-in", "/keys", "/metrics", "/healthz", "/apiary"):
        assert said(httpx.get(web + path, headers={"Origin": LISTED})) == []


def test_without_the_setting_nothing_is_said_of_it(scripted_stack: Stack) -> None:
    plain = f"http://127.0.0.1:{scripted_stack.port}/api/chats"
    answers = [httpx.options(plain, headers=preflight(LISTED)), httpx.get(plain, headers=bearing(scripted_stack))]

    assert [answer.status_code for answer in answers] == [401, 200]
    for answer in answers:
        assert said(answer) == []
        assert "origin" not in answer.headers.get("Vary", "").lower()
