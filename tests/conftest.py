"""The cast and the services every test may use.

Alice owns, Bob is another user, the operator sees the admin. Their fixtures work in ordinary and in transactional
tests: what these flush (the tiers of a migration too) the next one makes anew.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from datetime import timedelta
from decimal import Decimal
from uuid import uuid4

import pytest
from django.conf import LazySettings
from django.conf import settings as product
from django.test import Client
from django.utils import timezone
from redis import Redis
from redis.client import PubSub

from chat.models import Chat, Role, Run, Status, User
from inference.servers import blocking
from inference.streams import control_channel
from scheduler.models import Model, Override, Tier
from tests.acts import add_message, bearing, bring
from tests.real_model import model_folder

# The whole product as processes, for tests of several folders: one of each kind a session.
pytest_plugins = ["tests.stack.fixtures"]

OUTPUT_CAP = 64


@pytest.fixture(autouse=True)
def _no_static_files(settings: LazySettings) -> None:
    # Nobody collected them for a test, nor hashed their names.
    settings.WHITENOISE_AUTOREFRESH = True
    plain = {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}
    settings.STORAGES = {**product.STORAGES, "staticfiles": plain}


@pytest.fixture
def free(db: None) -> Tier:
    return _tier("free", concurrency=2)


@pytest.fixture
def pro(db: None) -> Tier:
    return _tier("pro", concurrency=8)


def _tier(slug: str, concurrency: int) -> Tier:
    numbers = {"concurrency": concurrency, "max_output_tokens": OUTPUT_CAP, "shed_at_percent": 100}
    return Tier.objects.update_or_create(slug=slug, defaults={"name": slug.title(), **numbers})[0]


@pytest.fixture
def model(free: Tier, pro: Tier, broker: Redis) -> Iterator[Model]:
    """The default model, under a name of its own, so that its room and queues are this test's."""
    row = Model.objects.create(
        slug=f"test-{uuid4().hex[:12]}",
        name="Default",
        source=str(model_folder()),
        context_window=2048,
        temperature=Decimal(0),
        is_default=True,
    )
    row.tiers.set([free, pro])
    yield row
    for key in broker.scan_iter(f"*{row.slug}*"):
        broker.delete(key)


@pytest.fixture
def alice(free: Tier) -> User:
    return User.objects.create_user("alice", tier=free)


@pytest.fixture
def bob(free: Tier) -> User:
    return User.objects.create_user("bob", tier=free)


@pytest.fixture
def operator(free: Tier) -> User:
    return User.objects.create_superuser("operator", tier=free)


@pytest.fixture
def own_limits() -> Callable[..., Override]:
    """Gives a user limits of their own, for a day from now unless told."""

    def give(user: User, days: int = 1, **numbers: int) -> Override:
        return Override.objects.create(user=user, until=timezone.now() + timedelta(days=days), **numbers)

    return give


@pytest.fixture
def as_alice(alice: User) -> Client:
    return bearing(alice)


@pytest.fixture
def as_bob(bob: User) -> Client:
    return bearing(bob)


@pytest.fixture
def signed_in(alice: User) -> Client:
    """Alice's browser."""
    client = Client()
    client.force_login(alice)
    return client


@pytest.fixture
def as_operator(operator: User) -> Client:
    """Signed in by session, as the admin wants it."""
    client = Client()
    client.force_login(operator)
    return client


@pytest.fixture
def chat(alice: User) -> Chat:
    return Chat.objects.create(owner=alice)


@pytest.fixture
def new_run(chat: Chat, model: Model) -> Callable[..., Run]:
    """Makes runs in a given status, past the services, in Alice's chat or in another."""

    def make(status: Status = Status.QUEUED, in_chat: Chat = chat, text: str = "Hi", answer: str = "Hello") -> Run:
        question = add_message(in_chat, Role.USER, text)
        run = Run.objects.create(
            chat=in_chat,
            prompt=question,
            model=model,
            tier=in_chat.owner.tier,
            input_tokens=3,
            max_output_tokens=OUTPUT_CAP,
        )
        bring(run, status, answer)
        return Run.objects.get(pk=run.pk)

    return make


@pytest.fixture
def broker() -> Iterator[Redis]:
    with Redis.from_url(product.BROKER_URL) as client:
        yield client


@pytest.fixture
def streams() -> Iterator[Redis]:
    with blocking(product.STREAMS_URL) as client:
        yield client


@pytest.fixture
def silent_redis() -> Iterator[str]:
    """The address of a server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        yield f"redis://127.0.0.1:{silent.getsockname()[1]}/0"


@pytest.fixture
def control(streams: Redis) -> Iterator[PubSub]:
    """What the worker that holds the streaming runs of these tests hears."""
    with PubSub(streams.connection_pool) as pubsub:
        pubsub.subscribe(control_channel("worker"))
        assert pubsub.get_message(timeout=5)
        yield pubsub
