"""A broker, or the server of the streams, that dies and comes back: what runs goes on, and work is pulled again."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest
from celery import Celery
from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from inference.control import ControlLine
from inference.stream_writer import StreamWriter
from inference.streams import Delta, control_channel, read_after
from launcher.child import Child, free_port
from launcher.valkey import Valkey
from tests.inference.pool_host import TOLD
from tests.inference.pool_worker import FOR_EVER, SLOTS, StartWorker, send
from tests.inference.worker_process import Queue, wait_until

PATIENCE_S = 60
WITH_DATA_OR_NOT = pytest.mark.parametrize("with_data", [True, False], ids=["with its data", "without its data"])


class Mortal:
    """A server of our own, always at the same address."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._valkey = Valkey(folder, uuid4().hex, folder / "valkey.log", port=free_port())
        self._child: Child = self._valkey.start()
        self.url = self._valkey.url(0)
        self._data = folder / "valkey" / "appendonlydir"

    def die(self) -> None:
        # While the disk is busy the server writes its log late: what a test told it must be in there. The command waits
        # for its own connection's last write, hence for all before it.
        with suppress(RedisError), Redis.from_url(self.url, socket_timeout=10, single_connection_client=True) as client:
            client.set("dying", 1)
            client.execute_command("WAITAOF", 1, 0, 5000)
        self._child.kill()

    def come_back(self, with_data: bool = True) -> None:
        if not with_data:
            for file in self._data.iterdir():
                file.unlink()
        self._child = self._valkey.start()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Mortal]:
    server = Mortal(tmp_path / "own")
    yield server
    server.die()


@pytest.fixture
def broker(server: Mortal) -> Iterator[Redis]:
    """In place of the one that tests share."""
    with Redis.from_url(server.url) as client:
        yield client
        server.die()
        server.come_back()


@pytest.fixture
def queue(server: Mortal, broker: Redis) -> Iterator[Queue]:
    sender = Celery("sender", broker=server.url)
    yield Queue(sender, broker, f"pool-test-{uuid4().hex[:12]}")
    sender.close()


@WITH_DATA_OR_NOT
def test_a_worker_outlives_its_broker(start_worker: StartWorker, server: Mortal, queue: Queue, with_data: bool) -> None:
    worker = start_worker(BROKER_URL=server.url, DRAIN_S="60")
    send(queue, jobs=4, tokens=50)  # ends while the broker is away
    send(queue, jobs=4, tokens=1000)  # ends after it has come back
    wait_until(lambda: worker.count("begun") == 8, "all run")
    server.die()
    wait_until(lambda: worker.count("done") == 4, "the short ones go on to their end")
    wait_until(lambda: worker.log.count("Trying again") >= 2, "the worker has tried to connect again")
    server.come_back(with_data)

    send(queue, jobs=1, tokens=2, script="after")
    wait_until(lambda: worker.count("done") >= 9, "the long ones end, and a new one is pulled", 60)
    wait_until(lambda: queue.waiting == queue.unacknowledged == 0, "nothing is left in the broker", 60)
    send(queue, jobs=SLOTS + 4)
    wait_until(lambda: queue.unacknowledged == SLOTS, "every slot is free for another run")
    assert queue.waiting == 4
    worker.signal(signal.SIGQUIT)
    assert worker.wait() == 0, worker.log
    assert queue.waiting == SLOTS + 4


def test_a_queue_that_is_named_while_the_broker_is_away_is_pulled_from_when_it_is_back(
    start_worker: StartWorker, server: Mortal, queue: Queue, streams: Redis
) -> None:
    later = queue.named(f"{queue.name}-later")
    worker = start_worker(BROKER_URL=server.url)
    server.die()
    wait_until(lambda: "Trying again" in worker.log, "the worker misses its broker")
    streams.hset(f"{TOLD}:queues:{queue.name}", later.name, "1")
    server.come_back()
    send(later, jobs=1, tokens=2)

    wait_until(lambda: worker.count("done") == 1, "its task is done", PATIENCE_S)
    streams.delete(f"{TOLD}:queues:{queue.name}")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGQUIT])
def test_a_worker_whose_broker_is_away_drains_and_ends(
    start_worker: StartWorker, server: Mortal, queue: Queue, number: signal.Signals
) -> None:
    worker = start_worker(BROKER_URL=server.url, DRAIN_S="1")
    send(queue, jobs=2, tokens=FOR_EVER)
    wait_until(lambda: worker.count("begun") == 2, "all run")
    server.die()
    wait_until(lambda: "Trying again" in worker.log, "the worker misses its broker")
    worker.signal(number)

    assert worker.wait() == 0, worker.log
    assert worker.count("handed back") == 2


def test_a_dead_engine_ends_a_worker_whose_broker_is_away(
    start_worker: StartWorker, server: Mortal, queue: Queue
) -> None:
    worker = start_worker(BROKER_URL=server.url, ENGINE_SILENCE_S="3")
    send(queue, jobs=1, script='[[script {"failure": "engine_silent", "fail_after_tokens": 3}]]')
    wait_until(lambda: worker.count("begun") == 1, "it runs")
    server.die()

    assert worker.wait() == 1, worker.log
    assert worker.count("engine died under") == 1


@pytest.fixture
async def redis(server: Mortal) -> AsyncIterator[AsyncRedis]:
    """The worker's client of the streams."""
    retry = Retry(NoBackoff(), retries=0)
    async with AsyncRedis.from_url(server.url, socket_timeout=5, socket_connect_timeout=5, retry=retry) as client:
        yield client


async def until(condition: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await condition():  # noqa: ASYNC110  (Redis tells nobody)
            await asyncio.sleep(0.02)


@WITH_DATA_OR_NOT
async def test_the_control_line_hears_again(server: Mortal, redis: AsyncRedis, with_data: bool) -> None:
    heard: asyncio.Queue[object] = asyncio.Queue()
    run_id = uuid4()
    async with asyncio.timeout(PATIENCE_S), ControlLine(redis, "gpu@test", heard.put_nowait) as line:
        await line.hears()
        server.die()
        await until(lambda: _is_away(redis))
        server.come_back(with_data)

        async def is_heard() -> bool:
            # Again and again: what comes in one packet with the word that the channel is subscribed to is lost.
            await redis.publish(control_channel("gpu@test"), str(run_id))
            return not heard.empty()

        await until(is_heard)
        assert heard.get_nowait() == run_id


async def _is_away(redis: AsyncRedis) -> bool:
    try:
        await redis.ping()
    except RedisError:
        return True
    return False


@WITH_DATA_OR_NOT
async def test_the_writer_goes_on(server: Mortal, redis: AsyncRedis, with_data: bool) -> None:
    run_id = uuid4()

    async def told() -> str:
        events = [entry.event for entry in await read_after(redis, run_id, None)]
        return "".join(event.text for event in events if isinstance(event, Delta))

    async with StreamWriter(redis, patience_s=0.1) as writer:
        stream = await writer.open(run_id, 1, "model")
        stream.push("before, ", (1,))
        await stream.flush()
        server.die()
        stream.push("meanwhile, ", (2,))
        await stream.flush()  # takes no longer than the writer's patience
        stream.push("more, ", (3,))
        server.come_back(with_data)
        stream.push("after", (4,))
        writer.patience_s = PATIENCE_S
        await stream.flush()

        assert await told() == ("before, " if with_data else "") + "meanwhile, more, after"
