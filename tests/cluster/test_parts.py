"""What else asks the streams' Redis, in a cluster: feeds, nudges, reports, probes; and by how many connections."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from signal import SIGCONT, SIGSTOP
from uuid import UUID, uuid4

import pytest
from django.test import Client
from redis.asyncio import Redis
from redis.crc import key_slot

from chat import feed, hot_contexts, last_words
from chat.load import history
from chat.models import User
from chat.streaming.hub import Arrived, Live
from chat.streaming.sharded_hub import AnyHub
from inference import reports
from inference.control import ControlLine
from inference.reports import Report
from inference.servers import COMMANDS, asynchronous
from inference.streams import SHARDS, Delta, EntryId, run_key
from scheduler import dispensable
from scheduler.dispensable import DispensableRedis
from scheduler.models import Model
from tests.chat.test_load import FIGURES
from tests.cluster.nodes import ValkeyCluster
from tests.streaming.listening import listening
from tests.streaming.telling import Web, add
from tests.streaming.test_health import probed

RUNS = 5 * SHARDS


@contextmanager
def silent_holder(cluster: ValkeyCluster, key: str) -> Iterator[None]:
    """The primary of a key says nothing, nor does the replica that would stand in."""
    pair = cluster.primary_of(key_slot(key.encode()))
    for node in pair:
        node.signal(SIGSTOP)
    try:
        yield
    finally:
        for node in pair:
            node.signal(SIGCONT)
        cluster.settle()


async def test_an_event_is_heard_whichever_nodes_it_is_told_and_heard_at(web: Web, alice: User) -> None:
    gone = [feed.ChatDeleted(uuid4()) for _ in range(6)]
    async with listening(web.port, web.api.headers) as page:
        for two in (gone[:2], gone[2:4], gone[4:]):
            await asyncio.to_thread(partial(feed.tell, alice.pk, *two))

        assert await page.told(6) == [("chat_deleted", {"id": str(each.id)}) for each in gone]


async def test_a_feed_whose_node_is_lost_hears_at_another_and_says_that_it_missed_something(
    web: Web, alice: User, cluster: ValkeyCluster
) -> None:
    async with listening(web.port, web.api.headers) as page:
        for node in cluster.nodes:
            node.says("CLIENT", "KILL", "TYPE", "pubsub")
        assert await page.told(1) == [("missed", {})]

        await asyncio.to_thread(partial(feed.tell, alice.pk, feed.ChatDeleted(alice.pk)))
        assert (await page.told(2))[1] == ("chat_deleted", {"id": str(alice.pk)})


async def test_a_worker_hears_whom_it_is_to_stop(cluster: ValkeyCluster) -> None:
    heard: asyncio.Queue[UUID] = asyncio.Queue()
    name, run_id = f"gpu@{uuid4()}", uuid4()
    async with asynchronous(cluster.url) as redis, ControlLine(redis, name, heard.put_nowait) as line:
        await line.hears()
        await asyncio.to_thread(last_words.nudge, name, run_id)

        assert await asyncio.wait_for(heard.get(), 5) == run_id


async def test_streams_of_many_tags_are_dropped_and_looked_at_together(redis: Redis) -> None:
    runs = [uuid4() for _ in range(9)]
    for run_id in runs:
        await add(redis, run_id, EntryId(1, 1), Delta("x", 0))

    await asyncio.to_thread(last_words.drop, runs)

    assert not [run_id for run_id in runs if await redis.exists(run_key(run_id))]


def test_what_is_kept_with_a_time_is_read_by_the_clock_of_its_node(cluster: ValkeyCluster) -> None:
    redis = DispensableRedis(cluster.url).client
    redis.eval(reports.WRITE, 1, reports.KEY, "gpu1@here", Report(model="m").encoded(), "60")
    redis.xadd(history.KEY, {"m": "{}"})

    assert "gpu1@here" in {seen.worker for seen in reports.read(redis) if seen.is_fresh}
    assert 0 <= history.last_hour()[-1].age_s < 60
    redis.hdel(reports.KEY, "gpu1@here")


def test_with_the_reports_node_silent_the_page_says_what_it_does_not_know(
    cluster: ValkeyCluster, as_operator: Client, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispensable, "PAUSE_S", 0)  # or the next test's requests would not be counted either
    assert model.is_active
    with silent_holder(cluster, reports.KEY):
        assert "nothing is known of workers" in as_operator.get(FIGURES).content.decode()


@pytest.mark.django_db(transaction=True)
async def test_with_one_primary_silent_a_process_is_degraded_and_then_ready(cluster: ValkeyCluster) -> None:
    with silent_holder(cluster, hot_contexts.context_key(uuid4())):
        status, told = await probed()
    assert (status, told["status"], told["checks"]["streams"]) == (200, "degraded", "TimeoutError; the log says more")

    assert (await probed())[1]["status"] == "ready"


async def test_a_reader_for_each_tag_and_no_more_hold_connections(
    hub: AnyHub, redis: Redis, cluster: ValkeyCluster
) -> None:
    before = connections(cluster)
    lives = [Live(uuid4(), "m", "free") for _ in range(RUNS)]
    subscriptions = await asyncio.gather(*(hub.join(live, None) for live in lives))
    await asyncio.sleep(0.2)

    assert connections(cluster) - before <= SHARDS + COMMANDS
    for live, subscription in zip(lives, subscriptions, strict=True):
        await add(redis, live.run_id, EntryId(1, 1), Delta("x", 0))
        assert isinstance(await asyncio.wait_for(subscription.next(), 5), Arrived)


def connections(cluster: ValkeyCluster) -> int:
    """Clients of all nodes, ourselves and the replicas' links among them."""
    return sum(int(node.says("INFO", "clients")["connected_clients"]) for node in cluster.nodes)
