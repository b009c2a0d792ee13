"""Letting runs go to Celery's queues."""

from __future__ import annotations

import json
from uuid import UUID

import pytest
from celery import Celery
from django.conf import settings
from kombu.exceptions import KombuError
from redis import Redis
from redis.exceptions import RedisError
from uuid6 import uuid7

from scheduler.dispatch import Dispatcher, broker_client
from scheduler.room import Room, queue_name
from tests.rooms import A_COST, strangers, taken

LOOKAHEAD = 2


def celery(url: str) -> Celery:
    app = Celery("test", broker=url, set_as_current=False)
    app.conf.broker_transport_options = {"priority_steps": [0]}
    return app


@pytest.fixture
def dispatcher(redis: Redis) -> Dispatcher:
    return Dispatcher(redis, celery(settings.BROKER_URL), LOOKAHEAD)


def queued(redis: Redis, name: str) -> list[UUID]:
    """The runs in the queue, the next one first."""
    messages = redis.lrange(queue_name(name, "free"), 0, -1)
    return [UUID(json.loads(message)["headers"]["id"]) for message in reversed(messages)]


def test_a_run_that_is_admitted_is_sent_while_the_queue_is_shallow(
    dispatcher: Dispatcher, redis: Redis, name: str
) -> None:
    runs = [uuid7() for _ in range(4)]

    sent = [taken(dispatcher.admit(strangers([run_id]), name, "free")) for run_id in runs]

    assert sent == [[runs[0]], [runs[1]], [], []]
    assert queued(redis, name) == runs[:LOOKAHEAD]


def test_a_worker_that_takes_a_run_makes_room_for_the_next(dispatcher: Dispatcher, redis: Redis, name: str) -> None:
    runs = [uuid7() for _ in range(4)]
    for run_id in runs:
        dispatcher.admit(strangers([run_id]), name, "free")
    redis.rpop(queue_name(name, "free"))

    assert taken(dispatcher.release(name, "free")) == [runs[2]]
    assert queued(redis, name) == runs[1:3]


def test_a_place_is_exact_from_the_room_to_the_head_of_the_queue(
    dispatcher: Dispatcher, redis: Redis, name: str
) -> None:
    runs = [uuid7() for _ in range(5)]
    for run_id in runs:
        dispatcher.admit(strangers([run_id]), name, "free")
    room = Room(redis, name, "free")
    assert [room.position(run_id) for run_id in runs] == [1, 2, 3, 4, 5]

    redis.rpop(queue_name(name, "free"))

    assert [room.position(run_id) for run_id in runs] == [None, 1, 2, 3, 4]


def test_a_message_names_the_task_the_run_and_its_cost(dispatcher: Dispatcher, redis: Redis, name: str) -> None:
    run_id = uuid7()
    dispatcher.admit(strangers([run_id]), name, "free")

    message = json.loads(redis.lindex(queue_name(name, "free"), 0) or "")

    assert message["headers"]["task"] == "chat.tasks.generate"
    assert message["headers"]["cost"] == A_COST
    assert message["headers"]["argsrepr"] == repr([str(run_id)])


def test_a_broker_that_is_away_is_an_error_at_once(name: str) -> None:
    away = "redis://127.0.0.1:1/0"

    with pytest.raises((RedisError, KombuError)):
        Dispatcher(broker_client(away), celery(away), LOOKAHEAD).admit(strangers([uuid7()]), name, "free")


def test_a_run_that_was_taken_out_but_could_not_be_sent_is_an_error(redis: Redis, name: str) -> None:
    dispatcher = Dispatcher(redis, celery("redis://127.0.0.1:1/0"), LOOKAHEAD)

    with pytest.raises(KombuError):
        dispatcher.admit(strangers([uuid7()]), name, "free")


def test_connections_that_died_while_idle_do_no_harm(dispatcher: Dispatcher, redis: Redis, name: str) -> None:
    dispatcher.admit(strangers([uuid7()]), name, "free")
    for client in redis.client_list():
        if client["db"] == str(redis.connection_pool.connection_kwargs["db"]) and client["cmd"] != "client|list":
            redis.client_kill_filter(_id=client["id"])

    dispatcher.admit(strangers([uuid7()]), name, "free")

    assert len(queued(redis, name)) == 2
