"""The broker, and a model that only one test's rooms are of."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest
from django.conf import settings
from redis import Redis

from scheduler.dispatch import broker_client


@pytest.fixture
def redis() -> Iterator[Redis]:
    with broker_client(settings.BROKER_URL) as client:
        yield client


@pytest.fixture
def name(redis: Redis) -> Iterator[str]:
    """Slug of a model; whatever the broker has under it goes with the test."""
    name = f"model-{uuid4().hex[:12]}"
    yield name
    for key in redis.scan_iter(f"*{name}*"):
        redis.delete(key)
