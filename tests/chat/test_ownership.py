"""What somebody owns is not found by anybody else: every address of the URL map that takes an id, by every method."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from uuid import uuid4

import pytest
from django.conf import settings
from django.test import Client
from django.urls import URLResolver, get_resolver

from chat.models import ApiKey, Run, Scope, Status, User
from chat.streaming import rows
from chatsite.asgi import Application
from tests.acts import everything_stored
from tests.sse_client import Answer, request
from tests.streaming.telling import serving

# An argument of an address, and which of the things around Alice's live run it is. A new kind of id is added here.
ALICES_KEY = uuid4()
ARGUMENTS: Mapping[str, Callable[[Run], object]] = {
    "chat_id": lambda run: run.chat_id,
    "message_id": lambda run: run.prompt_id,
    "run_id": lambda run: run.pk,
    "key_id": lambda _: ALICES_KEY,
    "response_id": lambda run: f"resp_{run.pk.hex}",
}
# Of models, which nobody owns.
NOT_OWNED = {"slug"}
# Ids in a query, which the URL map does not know.
QUERIES = (
    *("/api/events?run=<uuid:run_id>", "/api/events?run=<uuid:run_id>:1-0-0"),
    "/v1/responses/<response:response_id>?stream=true",
)
# Django's admin asks for staff itself.
OF_OTHERS = ("/admin/",)
# Not OPTIONS: it describes the address, and looks nothing up.
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
# Whatever an address may want of a body, so that nobody is refused for it.
BODY = {"content": "Hi", "title": "Mine now", "name": "Mine now"}
MALFORMED = ("7", "x" * 36, "00000000-0000-0000-0000-00000000000", "%00", "-", "9" * 400)
ARGUMENT = re.compile(r"<(?:\w+:)?(\w+)>")
API = ("/api/", "/v1/")
FOR_KEYS = "/v1/"

Headers = Mapping[str, str]
# With a token, as any browser has one: without, changes are refused before anybody asks who sends them.
A_TOKEN = "t" * 32
NOBODY: dict[str, str] = {"Cookie": f"csrftoken={A_TOKEN}", "X-CSRFToken": A_TOKEN}


def addresses(resolver: URLResolver, prefix: str = "/") -> Iterator[str]:
    """The routes below `resolver` as they are written, but for those that others guard."""
    for entry in resolver.url_patterns:
        route = f"{prefix}{entry.pattern}"
        if route.startswith(OF_OTHERS):
            continue
        if isinstance(entry, URLResolver):
            yield from addresses(entry, route)
        else:
            assert "(" not in route, f"{route}: write it with path(), so that its arguments can be filled in"
            yield route


ROUTES = tuple(addresses(get_resolver()))
WITH_IDS = tuple(route for route in (*ROUTES, *QUERIES) if {*ARGUMENT.findall(route)} - NOT_OWNED)
WITHOUT_IDS = tuple(route for route in ROUTES if not ARGUMENT.search(route))


@dataclass(frozen=True)
class World:
    """A server, a live run of Alice's, and what people send to say who they are, by key and by session."""

    port: int
    run: Run
    alice: Mapping[str, Headers]
    bob: Mapping[str, Headers]

    async def ask(self, method: str, path: str, headers: Headers) -> Answer:
        """Send one request, and look at the answer's head."""
        body = None if method in {"GET", "HEAD"} else BODY
        async with request(self.port, method, path, headers, body) as answer:
            return answer

    def of_alice(self, route: str) -> str:
        """The route's address of what Alice owns."""
        for name in ARGUMENT.findall(route):
            assert name in ARGUMENTS, f"{route}: say in ARGUMENTS which of Alice's things its `{name}` is"
        return ARGUMENT.sub(lambda argument: str(ARGUMENTS[argument[1]](self.run)), route)


def credentials(route: str) -> Sequence[str]:
    """What opens the route: keys are for programs."""
    if route.startswith(FOR_KEYS):
        return ("key",)
    return ("key", "session") if route.startswith(API) else ("session",)


@pytest.fixture
def live_run(transactional_db: None, new_run: Callable[..., Run], alice: User) -> Run:
    ApiKey.objects.create(user=alice, name="laptop", shown="pal_", digest="of nothing", public_id=ALICES_KEY)
    new_run(Status.DONE)
    return new_run(Status.STREAMING)


@pytest.fixture
async def world(live_run: Run, alice: User, bob: User) -> AsyncIterator[World]:
    by_alice, by_bob = await rows.ask(lambda: (sends(alice), sends(bob)))
    async with serving(Application()) as port:
        yield World(port, live_run, by_alice, by_bob)


def sends(user: User) -> Mapping[str, Headers]:
    """What a program and a browser of the user's send."""
    client = Client()
    client.force_login(user)
    session = client.cookies[settings.SESSION_COOKIE_NAME].value
    return {
        "key": {"Authorization": f"Bearer {ApiKey.objects.issue(user, 'test', scopes=Scope.values)[1]}"},
        "session": NOBODY | {"Cookie": f"sessionid={session}; {NOBODY['Cookie']}"},
    }


def is_refused(answer: Answer, method: str, status: int) -> bool:
    """Whether it was refused with `status`, or because the address does not take the method from anybody."""
    not_taken = answer.status == 405 and method not in answer.headers["allow"]
    return not_taken or answer.status == status


def test_the_walk_finds_addresses_with_ids() -> None:
    assert {"/api/chats/<uuid:chat_id>", "/api/runs/<uuid:run_id>/stream"} <= set(WITH_IDS)


@pytest.mark.parametrize("route", WITH_IDS)
async def test_what_alice_owns_is_found_by_nobody_else(world: World, route: str) -> None:
    path, before = world.of_alice(route), await rows.ask(everything_stored)
    # Without a credential a page leads to where one signs in.
    refusals: list[tuple[Headers, int]] = [(NOBODY, 401 if route.startswith(API) else 302)]
    refusals += [(world.bob[credential], 404) for credential in credentials(route)]

    for headers, status in refusals:
        answers = {method: await world.ask(method, path, headers) for method in METHODS}
        wrong = {method: answer.status for method, answer in answers.items() if not is_refused(answer, method, status)}
        assert wrong == {}, f"{path}, by {headers}"

    assert await rows.ask(everything_stored) == before
    # And she finds it, by a method or two: else all this would say nothing.
    for credential in credentials(route):
        found = [(await world.ask(method, path, world.alice[credential])).status for method in ("GET", "POST")]
        assert set(found) & {401, 403, 404, 500} == set()
        assert found != [405, 405]


@pytest.mark.parametrize("route", WITH_IDS)
async def test_unknown_and_malformed_ids_are_not_found(world: World, route: str) -> None:
    for value in (str(uuid4()), *MALFORMED):
        path = ARGUMENT.sub(value, route)
        answers = {method: await world.ask(method, path, world.alice[credentials(route)[-1]]) for method in METHODS}
        assert {
            method: answer.status for method, answer in answers.items() if not is_refused(answer, method, 404)
        } == {}


@pytest.mark.parametrize("route", WITHOUT_IDS)
async def test_an_address_without_ids_shows_nothing_of_somebody_elses(world: World, route: str) -> None:
    async with request(world.port, "GET", route, world.bob[credentials(route)[-1]]) as answer:
        is_endless = answer.headers.get("content-type", "").startswith("text/event-stream")
        body = "" if is_endless else (await answer.body()).decode()

    assert answer.status < 500
    for owned in (world.run.pk, world.run.chat_id, world.run.prompt_id):
        assert str(owned) not in body
