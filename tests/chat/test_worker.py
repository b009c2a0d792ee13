"""The GPU worker as a process of its own, on this test's rows: from the room to the stored answer."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from signal import SIGTERM
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from django.conf import settings
from django.db import connection
from django.test import Client
from django.utils import timezone
from redis import Redis

from chat.models import Chat, Run, Status, User
from chat.queueing import dispatcher, newcomer
from chat.recovery import Reaper
from chatsite.celery import app
from inference.streams import run_key
from scheduler import rollouts
from scheduler.models import Model, ModelVersion, Tier
from scheduler.room import queue_name, room_key
from tests.admin_forms import tier_form
from tests.inference.worker_process import Queue, WorkerProcess, wait_until

pytestmark = pytest.mark.django_db(transaction=True)

TEXT = "Fünf Wörter in einem Satz. "
LONG_ANSWER = {"SCRIPT_TEXT": TEXT * 100, "SCRIPT_TOKENS_PER_S": "60"}
SHORT_ANSWER = {"SCRIPT_TEXT": TEXT, "SCRIPT_TOKENS_PER_S": "500"}

StartWorker = Callable[..., WorkerProcess]


@pytest.fixture
def start_worker(model: Model, tmp_path: Path) -> Iterator[StartWorker]:
    workers: list[WorkerProcess] = []
    version = {"source": model.source, "context_window": model.context_window}
    rollouts.adopt(ModelVersion.objects.create(model=model, **version))

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
            dispatcher().admit([newcomer(run)], run.model_id, run.tier_id)
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
    assert set(Run.objects.filter(kind="reply").values_list("answer__content", "attempt", "worker")) == {
        (TEXT, 1, worker.name)
    }


def test_what_the_broker_lost_is_answered_once_the_reaper_has_looked(
    start_worker: StartWorker, queue: Queue, ask: Callable[..., list[Run]], broker: Redis, model: Model
) -> None:
    runs = ask(settings.DISPATCH_LOOKAHEAD + 3)
    broker.delete(room_key(model.slug, "free"), queue_name(model.slug, "free"))
    start_worker(**SHORT_ANSWER)

    Reaper(period_s=0).round()

    wait_until(lambda: count(runs, Status.DONE) == len(runs), "all questions are answered")


def test_what_a_stopping_worker_hands_back_another_goes_on_with(
    start_worker: StartWorker, queue: Queue, ask: Callable[..., list[Run]]
) -> None:
    first = start_worker(DRAIN_S="0.1", **LONG_ANSWER)
    runs = ask(3)
    wait_until(lambda: all(told(run) > 3 for run in runs), "the answers have begun")
    first.signal(SIGTERM)
    assert first.wait() == 0, first.log
    assert (queue.waiting, queue.unacknowledged) == (3, 0)

    start_worker(**LONG_ANSWER | {"SCRIPT_TOKENS_PER_S": "5000"})
    wait_until(lambda: count(runs, Status.DONE) == 3, "all questions are answered")
    assert set(Run.objects.filter(kind="reply").values_list("answer__content", "attempt")) == {(TEXT * 100, 2)}


def test_a_tier_that_an_operator_makes_is_served_by_workers_that_run(
    start_worker: StartWorker, as_operator: Client, free: Tier, model: Model, new_run: Callable[..., Run]
) -> None:
    worker = start_worker(**SHORT_ANSWER)
    as_operator.post("/admin/scheduler/tier/add/", tier_form(free, slug="team", name="Team"))
    member = User.objects.create_user("carol", tier=Tier.objects.get(slug="team"))
    run = new_run(in_chat=Chat.objects.create(owner=member))
    dispatcher().admit([newcomer(run)], run.model_id, run.tier_id)

    wait_until(lambda: count([run], Status.DONE) == 1, "its question is answered")
    assert f"queue={queue_name(model.slug, 'team')}" in worker.log


@pytest.fixture
def role() -> Iterator[str]:
    """Another name for the database's owner, under which it can be away for one process alone."""
    name = f"worker_{uuid4().hex[:8]}"
    _execute(f"CREATE ROLE {name} LOGIN PASSWORD '{name}' IN ROLE {connection.settings_dict['USER']}")
    yield name
    _shut_out(name)
    _execute(f"DROP ROLE {name}")


def _execute(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


def _shut_out(role: str) -> None:
    """As if the database were down, for whoever comes under this name."""
    _execute(f"ALTER ROLE {role} NOLOGIN")
    _execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{role}'")


def _as(role: str) -> str:
    parts = urlsplit(database_url())
    return parts._replace(netloc=f"{role}:{role}@{parts.hostname}:{parts.port}").geturl()


def test_a_worker_whose_database_is_away_drains_and_ends(
    start_worker: StartWorker, queue: Queue, ask: Callable[..., list[Run]], role: str
) -> None:
    worker = start_worker(DRAIN_S="1", DATABASE_URL=_as(role), **LONG_ANSWER)
    runs = ask(3)
    wait_until(lambda: all(told(run) > 3 for run in runs), "the answers have begun")
    _shut_out(role)
    worker.signal(SIGTERM)

    assert worker.wait() == 0, worker.log
    assert worker.log.count("run.handed_back") == 3
    assert (queue.waiting, queue.unacknowledged) == (3, 0)
    assert count(runs, Status.STREAMING) == 3  # until their leases run out


def test_leases_are_renewed_in_a_drain(start_worker: StartWorker, queue: Queue, ask: Callable[..., list[Run]]) -> None:
    worker = start_worker(LEASE_S="1", DRAIN_S="60", SCRIPT_TEXT=TEXT, SCRIPT_TOKENS_PER_S="3")
    runs = ask(2)
    wait_until(lambda: all(told(run) > 1 for run in runs), "the answers have begun")
    worker.signal(SIGTERM)
    first = set(leases(runs))

    wait_until(lambda: not first & set(leases(runs)), "each lease is another")
    assert worker.wait() == 0, worker.log
    assert set(Run.objects.filter(kind="reply").values_list("answer__content", "attempt")) == {(TEXT, 1)}


def leases(runs: list[Run]) -> list[datetime | None]:
    return list(Run.objects.filter(pk__in=[run.pk for run in runs]).values_list("lease_until", flat=True))


def test_a_silent_engine_counts_against_its_run_and_a_drain_does_not(
    start_worker: StartWorker, queue: Queue, ask: Callable[..., list[Run]]
) -> None:
    silent = start_worker(
        ENGINE_SILENCE_S="2", SCRIPT_FAILURE="engine_silent", SCRIPT_FAIL_AFTER_TOKENS="5", **LONG_ANSWER
    )
    [run] = ask(1)
    assert silent.wait() == 1, silent.log
    run.refresh_from_db()
    assert (run.status, run.attempt, run.hand_backs) == (Status.STREAMING, 1, 0)
    assert run.lease_until is not None
    assert run.lease_until <= timezone.now()

    drained = start_worker(DRAIN_S="0", **LONG_ANSWER)
    wait_until(lambda: Run.objects.filter(pk=run.pk, attempt=2).exists(), "another worker has it")
    wait_until(lambda: told(run) > 10, "it goes on")
    drained.signal(SIGTERM)
    assert drained.wait() == 0, drained.log
    run.refresh_from_db()
    assert (run.status, run.attempt, run.hand_backs) == (Status.STREAMING, 2, 1)
    assert queue.waiting == 1


def test_a_worker_for_no_model_says_so_and_ends(model: Model, tmp_path: Path) -> None:
    worker = WorkerProcess(tmp_path, "no-such-model", {"DATABASE_URL": database_url()})

    assert worker.wait() == 64
    assert "no-such-model" in worker.log.splitlines()[-1]


def test_a_worker_whose_cache_is_full_leaves_runs_to_others(
    start_worker: StartWorker, queue: Queue, ask: Callable[..., list[Run]]
) -> None:
    runs = ask(6)
    # A run takes 126 blocks or more: one is in, and another waits for its end.
    start_worker(SCRIPT_KV_BLOCKS="200", SCRIPT_CONTEXT_WINDOW="2048", **LONG_ANSWER)

    wait_until(lambda: count(runs, Status.STREAMING) == 2, "two runs are taken")
    time.sleep(1)  # the worker looks four times
    assert count(runs, Status.STREAMING) == 2
    assert queue.waiting == 4


def test_short_runs_fill_all_slots_though_their_worst_cases_are_not_known_beforehand(
    start_worker: StartWorker, queue: Queue, ask: Callable[..., list[Run]]
) -> None:
    runs = ask(30)
    Run.objects.update(max_output_tokens=64)
    # The cache holds one whole window, or 33 runs of six blocks.
    start_worker(SCRIPT_KV_BLOCKS="200", SCRIPT_CONTEXT_WINDOW="2048", SCRIPT_TOKENS_PER_S="5", SCRIPT_TEXT=TEXT * 10)

    wait_until(lambda: count(runs, Status.STREAMING) == 16, "all sixteen slots are taken")
