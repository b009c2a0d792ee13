"""The only sender of tasks: lets runs from their room into Celery's queues, a few ahead of the workers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from celery import Celery
from kombu import Connection, pools
from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from inference.queues import COST, sticky_name
from scheduler.room import Correction, Departure, Newcomer, Release, Room, queue_name
from scheduler.routing import Report
from scheduler.workers import Workers

TASK = "chat.tasks.generate"
# Somebody waits for the answer to a POST meanwhile, and the row is kept whatever happens here.
TIMEOUT_S = 1.0
# Once, at once: a pooled connection may have died since it was last used.
RETRY = {"max_retries": 1, "interval_start": 0, "interval_step": 0, "interval_max": 0}


def broker_client(url: str) -> Redis:
    """A client for the broker's Redis that gives up soon and never repeats a command."""
    return Redis.from_url(
        url, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S, retry=Retry(NoBackoff(), retries=0)
    )


class Dispatcher:
    """Sends queued runs to the workers. Raises `RedisError` or kombu's `OperationalError` when the broker is away.

    A run is taken out of its room before it is sent. Whoever dies in between loses nothing: the row says that the run
    is queued, and it is let in again. So a run may be sent twice, which the claim makes harmless.
    """

    def __init__(self, redis: Redis, app: Celery, lookahead: int) -> None:
        self._redis = redis
        self._app = app
        self._lookahead = lookahead
        self._rooms: dict[tuple[str, str], Room] = {}
        self._producers = pools.producers[_impatient(app.connection_for_write())]

    def admit(self, newcomers: Iterable[Newcomer], model: str, tier: str) -> Release:
        """Put runs into their room, then do as `release`."""
        return self._send(self._room(model, tier).release(self._lookahead, newcomers), model, tier)

    def release(
        self,
        model: str,
        tier: str,
        departed: Sequence[UUID] = (),
        corrections: Iterable[Correction] = (),
        report: Report | None = None,
    ) -> Release:
        """Send the first runs of a room while its queue is shallow; tells what was sent.

        `departed` are the runs that workers have taken and nobody has told of yet, `corrections` likewise of those that
        have ended; a worker that calls reports of itself. Two callers at once may send a few more than the queue should
        hold: its length is read before they send.
        """
        room = self._room(model, tier)
        return self._send(room.release(self._lookahead, (), departed, corrections, report), model, tier)

    def missing(self, run_ids: Sequence[UUID], model: str, tier: str) -> list[UUID]:
        """Those of the runs that wait neither in their room nor in a queue behind it."""
        return self._room(model, tier).missing(run_ids)

    def remove(self, run: Newcomer, model: str, tier: str) -> bool:
        """Take a run back, from its room or from its queue; False when it waits in neither."""
        return self._room(model, tier).remove(run)

    def sweep(self, model: str) -> list[UUID]:
        """Let all workers have what is kept for one in vain; tells these runs."""
        return Workers(self._redis, model).sweep()

    def tell(self, model: str, report: Report) -> None:
        """A worker is there, and does so."""
        Workers(self._redis, model).tell(report)

    def leave(self, model: str, worker: str) -> None:
        """A worker is about to end."""
        Workers(self._redis, model).leave(worker)

    def _room(self, model: str, tier: str) -> Room:
        if (model, tier) not in self._rooms:
            self._rooms[model, tier] = Room(self._redis, model, tier)
        return self._rooms[model, tier]

    def _send(self, release: Release, model: str, tier: str) -> Release:
        if release.taken:
            with self._producers.acquire(block=True, timeout=TIMEOUT_S) as producer:
                for departure in release.taken:
                    self._publish(producer, departure, _queue_of(departure, queue_name(model, tier)))
        return release

    def _publish(self, producer: Any, departure: Departure, queue: str) -> None:
        # The task's id is the run's, so that the room can find a run's message in the queue.
        self._app.send_task(
            TASK,
            args=[str(departure.run_id)],
            task_id=str(departure.run_id),
            headers={COST: departure.cost},
            queue=queue,
            producer=producer,
            retry=True,
            retry_policy=RETRY,
        )


def _queue_of(departure: Departure, shared: str) -> str:
    route = departure.route
    return sticky_name(shared, route.worker) if route and route.is_sticky else shared


def _impatient(connection: Connection) -> Connection:
    """The same broker, with timeouts for somebody who waits."""
    timeouts = {"socket_timeout": TIMEOUT_S, "socket_connect_timeout": TIMEOUT_S}
    return connection.clone(transport_options={**(connection.transport_options or {}), **timeouts})
