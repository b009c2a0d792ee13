"""A cluster for the streams of these tests, and the product on it as processes; all else as other tests have it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.conf import LazySettings

from tests.cluster.nodes import NODE_TIMEOUT_MS, ValkeyCluster
from tests.stack.fixtures import SCRIPT, stack_of
from tests.stack.stack import Stack
from tests.streaming.conftest import (  # noqa: F401  (its fixtures are ours too)
    alices_key,
    bobs_key,
    hub,
    new_telling,
    reading,
    redis,
    telling,
    web,
)

BROKER_DB = 10


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyCluster]:
    """Three primaries with a replica each."""
    cluster = ValkeyCluster(tmp_path_factory.mktemp("cluster"))
    with cluster.running():
        yield cluster


@pytest.fixture(autouse=True)
def _streams_url(cluster: ValkeyCluster, settings: LazySettings) -> None:
    settings.STREAMS_URL = cluster.url


@pytest.fixture
def failing_over(cluster: ValkeyCluster) -> Iterator[ValkeyCluster]:
    """The cluster, whose replicas soon stand in; it is whole again at the end, whatever a test did to it."""
    cluster.give_up_after(NODE_TIMEOUT_MS)
    yield cluster
    cluster.mend()


@pytest.fixture(scope="session")
def scripted_stack(cluster: ValkeyCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The product as processes, with its streams in the cluster."""
    yield from stack_of("scripted", BROKER_DB, tmp_path_factory, {**SCRIPT, "STREAMS_URL": cluster.url})
