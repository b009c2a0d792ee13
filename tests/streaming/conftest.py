"""Runs whose worker is the test, and a web process in this one to read them from."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest
from django.conf import LazySettings, settings
from redis.asyncio import Redis

from chat.models import ApiKey, Chat, Run, User
from chat.streaming.connect import streams_client
from chat.streaming.sharded_hub import AnyHub, hub_of
from chatsite.asgi import Application
from inference.servers import asynchronous
from tests.streaming.telling import Telling, Web, serving


@pytest.fixture
async def redis() -> AsyncIterator[Redis]:
    async with asynchronous(settings.STREAMS_URL) as client:
        yield client


@pytest.fixture
def new_telling(
    transactional_db: None, alice: User, new_run: Callable[..., Run], redis: Redis
) -> Callable[[], Telling]:
    """Makes queued runs of Alice's, each in a chat of its own."""
    return lambda: Telling(new_run(in_chat=Chat.objects.create(owner=alice)), redis)


@pytest.fixture
def telling(new_telling: Callable[[], Telling]) -> Telling:
    return new_telling()


@pytest.fixture
def alices_key(transactional_db: None, alice: User) -> str:
    return ApiKey.objects.issue(alice, "test")[1]


@pytest.fixture
def bobs_key(transactional_db: None, bob: User) -> str:
    return ApiKey.objects.issue(bob, "test")[1]


@pytest.fixture
async def web(alices_key: str, settings: LazySettings) -> AsyncIterator[Web]:
    settings.WHITENOISE_AUTOREFRESH = True  # nobody collected static files for a test
    application = Application()
    async with serving(application) as port:
        yield Web(port, alices_key, application)


@pytest.fixture
async def reading() -> AsyncIterator[Redis]:
    """The client that the product reads streams with."""
    async with streams_client() as client:
        yield client


@pytest.fixture
async def hub(reading: Redis) -> AsyncIterator[AnyHub]:
    hub = hub_of(reading)
    hub.start()
    yield hub
    await hub.stop()
