"""The GPU worker as a process of its own, on this test's rows: from the room to the stored answer."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from signal import SIGTERM
from urllib.parse import urlsplit

import pytest
from django.conf import settings
from django.db import connection
from redis import Redis

from chat.models import Chat, Run, Status
from chat.services import dispatcher
from chatsite.celery import app
from inference.streams import run_key
from scheduler.models import Model
from scheduler.room import queue_name, room_key
from tests.inference.worker_process import Queue, WorkerProcess, wait_until

pytestmark = pytest.mark.django_db(transaction=True)

TEXT = "Fünf Wörter in einem Satz. "
LONG_ANSWER = {"SCRIPT_TEXT": TEXT * 100, "SCRIPT_TOKENS_PER_S": "60"}
SHORT_ANSWER = {"SCRIPT_TEXT": TEXT, "SCRIPT_TOKENS_PER_S": "500"}

StartWorker = Callable[..., WorkerProcess]


@pytest.fixture
def start_worker(model: Model, tmp_path: Path) -> Iterator[StartWorker]:
    workers: list[WorkerProcess] = []

    def start(**environment: str) -> WorkerProcess:
        worker = WorkerProcess(tmp_path, model.slug, {"DATABASE_URL": database_url(), **environment})
        workers.append(worker)
        worker.wait_ready()
        return worker

    yield start
    for worker in workers:
        worker.kill()


@pytest.fixture
def queue(model: Model, broker: Redis) -> Iterator[Queue]:
    queue = Queue(app, broker, queue_name(model.slug, "free"))
    yield queue
    queue.delete()


@pytest.fixture
def ask(new_run: Callable[..., Run], chat: Chat) -> Callable[..., list[Run]]:
    """Admits questions, each in a chat of its own."""

    def admit(count: int) -> list[Run]:
        runs = [new_run(in_chat=Chat.objects.create(owner=chat.owner)) for _ in range(count)]
        for run in runs:
            Run.objects.filter(pk=run.pk).update(max_output_tokens=2000)
            dispatcher().admit([run.pk], run.model_id, run.tier_id)
        return runs

    return admit


def database_url() -> str:
    """Where this test's rows are."""
    return urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{connection.settings_dict['NAME']}").geturl()


def count(runs: list[Run], status: Status) -> int:
    return Run.objects.filter(pk__in=[run.pk for run in runs], status=status).count()


def told(run: Run) -> int:
    """How many entries readers have seen."""
    with Redis.from_url(settings.STREAMS_URL) as redis:
        length: int = redis.xlen(run_key(run.pk))
        return length


def test_more_questions_than_a_queue_holds_are_all_answered(
    start_worker: StartWorker, queue: Queue, ask: Callable[..., list[Run]]
) -> None:
    runs = ask(40)
    assert 0 < queue.waiting <= settings.DISPATCH_LOOKAHEAD
    worker = start_worker(SCRIPT_SLOTS="4", **SHORT_ANSWER)

    wait_until(lambda: count(runs, Status.DONE) == 40, "all questions are answered")
    worker.signal(SIGTERM)
    assert worker.wait() == 0, worker.log
    assert queue.waiting == queue.unacknowledged == 0
    assert set(Run.objects.values_list("answer__content", "attempt", "worker")) == {(TEXT, 1, worker.name)}


def test_what_the_broker_lost_a_starting_worker_answers(
    start_worker: StartWorker, queue: Queue, ask: Callable[..., list[Run]], broker: Redis, model: Model
) -> None:
    runs = ask(settings.DISPATCH_LOOKAHEAD + 3)
    broker.delete(room_key(model.slug, "free"), queue_name(model.slug, "free"))
    start_worker(**SHORT_ANSWER)

    wait_until(lambda: count(runs, Status.DONE) == len(runs), "all questions are answered")


def test_what_a_stopping_worker_hands_back_another_answers(
    start_worker: StartWorker, queue: Queue, ask: Callable[..., list[Run]]
) -> None:
    first = start_worker(DRAIN_S="0.1", **LONG_ANSWER)
    runs = ask(3)
    wait_until(lambda: all(told(run) > 3 for run in runs), "the answers have begun")
    first.signal(SIGTERM)
    assert first.wait() == 0, first.log
    assert (queue.waiting, queue.unacknowledged) == (3, 0)

    start_worker(**SHORT_ANSWER)
    wait_until(lambda: count(runs, Status.DONE) == 3, "all questions are answered")
    assert set(Run.objects.values_list("answer__content", "attempt")) == {(TEXT, 2)}


def test_a_worker_for_no_model_says_so_and_ends(model: Model, tmp_path: Path) -> None:
    worker = WorkerProcess(tmp_path, "no-such-model", {"DATABASE_URL": database_url()})

    assert worker.wait() == 64
    assert "no-such-model" in worker.log.splitlines()[-1]
